"""VGG with 11, 13, 16 or 19 weight layers.

Source:
    Simonyan & Zisserman, ICLR 2015, Table 1, columns A, B, D and E.
"""

from functools import partial

from planner.models.builder import ModelBuilder
from planner.models.registry import class_count, register_model

_CHANNELS = (64, 128, 256, 512, 512)
VGG_DEPTHS = {"vgg11": (1, 1, 2, 2, 2), "vgg13": (2, 2, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
"""Convolutions of each block."""


def convolutions(net: ModelBuilder, depths: tuple[int, ...]) -> None:
    """Add the five blocks of convolutions, each of which ends with pooling that halves the positions.

    Source:
        Simonyan & Zisserman, ICLR 2015, Table 1.
    """
    for block, (depth, channels) in enumerate(zip(depths, _CHANNELS, strict=True), 1):
        for i in range(1, depth + 1):
            net.conv(channels, 3, pad=1, name=f"conv{block}_{i}")
        net.pool("max", 2)


def _vgg(net: ModelBuilder, *, depths: tuple[int, ...], classes: int) -> None:
    convolutions(net, depths)
    for _ in range(2):
        net.linear(4096, activation="relu", dropout=0.5)
    net.linear(classes)
    net.loss()


for _name, _depths in VGG_DEPTHS.items():
    register_model(_name, partial(_vgg, depths=_depths), image=(3, 224, 224), classes=class_count())
