"""ResNet with 18 to 152 weight layers.

Source:
    He et al., "Deep residual learning for image recognition", CVPR 2016, Table 1; the stride of a bottleneck
    is in its 3x3 convolution, as in torchvision.
"""

from functools import partial

from planner.models.builder import ModelBuilder
from planner.models.registry import class_count, register_model

_DEPTHS = {
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
    "resnet101": (3, 4, 23, 3),
    "resnet152": (3, 8, 36, 3),
}
"""Blocks of each stage."""
BASIC = ("resnet18", "resnet34")
"""Models of basic blocks; the others have bottlenecks."""
EXPANSION = 4
"""Output channels of a bottleneck over its inner ones."""


def _resnet(net: ModelBuilder, *, depths: tuple[int, ...], bottleneck: bool, classes: int) -> None:
    net.conv(64, 7, stride=2, pad=3, batch_norm=True)
    net.pool("max", 3, stride=2, pad=1)
    for stage, depth in enumerate(depths, 1):
        for i in range(depth):
            stride = 2 if stage > 1 and i == 0 else 1
            block = _bottleneck_block if bottleneck else basic_block
            block(net, f"layer{stage}.{i}", 64 * 2 ** (stage - 1), stride)
    net.global_pool()
    net.linear(classes)
    net.loss()


def basic_block(net: ModelBuilder, name: str, channels: int, stride: int) -> None:
    """Add two 3x3 convolutions and a shortcut, which is a 1x1 convolution if the shape changes."""
    source = net.last
    net.conv(channels, 3, stride=stride, pad=1, batch_norm=True, name=f"{name}.conv1")
    net.conv(channels, 3, pad=1, batch_norm=True, activation=None, name=f"{name}.conv2")
    _join(net, name, source, stride)


def _bottleneck_block(net: ModelBuilder, name: str, inner: int, stride: int) -> None:
    """Add convolutions of 1x1, 3x3 and 1x1 and a shortcut, which is a 1x1 convolution if the shape changes."""
    source = net.last
    net.conv(inner, 1, batch_norm=True, name=f"{name}.conv1")
    net.conv(inner, 3, stride=stride, pad=1, batch_norm=True, name=f"{name}.conv2")
    net.conv(inner * EXPANSION, 1, batch_norm=True, activation=None, name=f"{name}.conv3")
    _join(net, name, source, stride)


def _join(net: ModelBuilder, name: str, source: str, stride: int) -> None:
    """Add the sum of the layer added last and the shortcut from ``source``."""
    main, channels = net.last, net.channels()
    if stride > 1 or net.channels(source) != channels:
        name_down = f"{name}.downsample"
        source = net.conv(channels, 1, source, stride=stride, batch_norm=True, activation=None, name=name_down)
    net.sum((main, source), activation="relu", name=f"{name}.add")


for _name, _depths in _DEPTHS.items():
    _write = partial(_resnet, depths=_depths, bottleneck=_name not in BASIC)
    register_model(_name, _write, image=(3, 224, 224), classes=class_count())
