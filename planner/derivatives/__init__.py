"""Derivatives of recorded computations: which tensors they read, and what memory their passes take."""
