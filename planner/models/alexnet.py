"""AlexNet: one column, one column with narrower linear layers, and CaffeNet with its two groups.

Source:
    Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014 (one column, no
    response normalisation; channels and padding as in torchvision).  ``alexnet-3072``: Dettmers, "8-bit
    approximations for parallelism in deep learning", 2016, Table 4.  CaffeNet: Caffe's
    ``bvlc_reference_caffenet`` (pooling before normalisation).
"""

from functools import partial

from planner.models.builder import ModelBuilder
from planner.models.registry import class_count, register_model


def _alexnet(net: ModelBuilder, *, hidden: int, classes: int) -> None:
    net.conv(64, 11, stride=4, pad=2)
    net.pool("max", 3, stride=2)
    net.conv(192, 5, pad=2)
    net.pool("max", 3, stride=2)
    for channels in (384, 256, 256):
        net.conv(channels, 3, pad=1)
    net.pool("max", 3, stride=2)
    _head(net, hidden, classes)


def _caffenet(net: ModelBuilder, *, classes: int) -> None:
    net.conv(96, 11, stride=4)
    net.pool("max", 3, stride=2, ceil_mode=True)
    net.local_response_norm()
    net.conv(256, 5, pad=2, groups=2)
    net.pool("max", 3, stride=2, ceil_mode=True)
    net.local_response_norm()
    net.conv(384, 3, pad=1)
    net.conv(384, 3, pad=1, groups=2)
    net.conv(256, 3, pad=1, groups=2)
    net.pool("max", 3, stride=2, ceil_mode=True)
    _head(net, 4096, classes)


def _head(net: ModelBuilder, hidden: int, classes: int) -> None:
    for _ in range(2):
        net.linear(hidden, activation="relu", dropout=0.5)
    net.linear(classes)
    net.loss()


register_model("alexnet", partial(_alexnet, hidden=4096), image=(3, 224, 224), classes=class_count())
register_model("alexnet-3072", partial(_alexnet, hidden=3072), image=(3, 224, 224), classes=class_count())
register_model("caffenet", _caffenet, image=(3, 227, 227), classes=class_count())
