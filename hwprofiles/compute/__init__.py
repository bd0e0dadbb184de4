"""Compute profiles: how long a device takes for a kernel, and how much of it a kernel keeps busy."""
