"""LeNet-5, in Caffe's form.

Source:
    LeCun et al., "Gradient-based learning applied to document recognition", 1998; Caffe's ``lenet.prototxt``
    (20 and 50 maps, max pooling, ReLU in the hidden layer only).
"""

from planner.models.builder import ModelBuilder
from planner.models.registry import class_count, register_model


def _lenet5(net: ModelBuilder, *, classes: int) -> None:
    for channels in (20, 50):
        net.conv(channels, 5, activation=None)
        net.pool("max", 2)
    net.linear(500, activation="relu")
    net.linear(classes)
    net.loss()


register_model("lenet5", _lenet5, image=(1, 28, 28), classes=class_count(10))
