"""One rank's view of a program: its tasks, the consumers of its tensors, gradient buckets, recorded times."""
