"""Kinds of layers, with the shapes, input regions, parameters and work of each."""
