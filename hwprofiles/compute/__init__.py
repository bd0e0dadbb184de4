"""Compute profiles: the time that a device takes for a kernel, and the share of it that the kernel keeps busy."""
