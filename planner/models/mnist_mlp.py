"""The fully connected network that the 8-bit paper trains on MNIST.

Source:
    Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Section 3.4: 784 x 1024 x 1024 x 10
    with rectified linear units and dropout of 0.2 of the data and 0.3 of either hidden layer.
"""

from planner.models.builder import ModelBuilder
from planner.models.registry import class_count, register_model


def _mnist_mlp(net: ModelBuilder, *, classes: int) -> None:
    net.dropout(0.2)
    for _ in range(2):
        net.linear(1024, activation="relu", dropout=0.3)
    net.linear(classes)
    net.loss()


register_model("mnist-mlp", _mnist_mlp, image=(1, 28, 28), classes=class_count(10))
