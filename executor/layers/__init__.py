"""The arithmetic of layers: one part of one layer, forward and backward, on one device."""

from executor.layers.base import PartLayer, TrainingStep
from executor.layers.factory import parameter_box, part_layer

__all__ = ["PartLayer", "TrainingStep", "parameter_box", "part_layer"]
