"""Data types that messages are compressed with, and the tensors and gradients that a strategy compresses."""
