"""One rank's view of a program: its tasks, parts, messages, consumers of tensors, gradient buckets, recorded times."""
