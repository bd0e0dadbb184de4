"""A plan run for real, by local processes or under torchrun."""
