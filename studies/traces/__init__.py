"""Traces of other programs: PyTorch's profiler against plans, and Chakra's execution traces of programs."""
