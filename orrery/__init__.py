"""The command line and the public names."""
