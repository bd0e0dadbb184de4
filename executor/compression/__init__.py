"""Data types of compressed messages: 8 bits, one bit, a threshold, half-width floats; on processors and GPUs."""
