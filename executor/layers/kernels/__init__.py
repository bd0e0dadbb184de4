"""Arithmetic that knows no layer: windows, activations, products, memory layouts."""
