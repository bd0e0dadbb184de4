"""The routes of a cluster as arrays: look-up, latencies, ring order of devices, levels, use of copy engines."""
