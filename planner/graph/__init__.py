"""The computation graph: layers, tensors, shapes, and the paths that layers form."""
