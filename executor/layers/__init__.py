"""The arithmetic of layers: one part of one layer, forward and backward, on one device."""

from executor.layers.base import PartLayer, Step
from executor.layers.factory import parameter_box, part_layer

__all__ = ["PartLayer", "Step", "parameter_box", "part_layer"]
