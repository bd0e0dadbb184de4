"""A small network for handwritten digits of 1 x 8 x 8, for real runs that learn within seconds.

Source:
    Two convolutions and two linear layers after LeCun et al., "Gradient-based learning applied to document
    recognition", 1998; images as in Alpaydin & Kaynak, "Cascading classifiers", 1998, which scikit-learn ships.
"""

from planner.models.builder import ModelBuilder
from planner.models.registry import class_count, register_model


def _digits(net: ModelBuilder, *, classes: int) -> None:
    net.conv(16, 3, pad=1)
    net.conv(32, 3, pad=1)
    net.pool("max", 2)
    net.linear(64, activation="relu")
    net.linear(classes)
    net.loss()


register_model("digits", _digits, image=(1, 8, 8), classes=class_count(10))
