"""Kernels that layers share: sliding windows, activations, matrix products, memory layouts."""
