"""Inception-v3 without its auxiliary classifier.

Source:
    Szegedy et al., "Rethinking the Inception architecture for computer vision", CVPR 2016, Table 1 and
    Figures 5 to 7; block names, channels and padding as in torchvision (23,834,568 parameters).
"""

from planner.models.builder import ModelBuilder
from planner.models.registry import class_count, register_model

Kernel = int | tuple[int, int]


def _inception_v3(net: ModelBuilder, *, classes: int) -> None:
    _stem(net)
    for name, pool_channels in (("5b", 32), ("5c", 64), ("5d", 64)):
        _block_a(net, f"mixed_{name}", pool_channels)
    _block_b(net, "mixed_6a")
    for name, channels in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        _block_c(net, f"mixed_{name}", channels)
    _block_d(net, "mixed_7a")
    for name in ("7b", "7c"):
        _block_e(net, f"mixed_{name}")
    net.global_pool()
    net.linear(classes)
    net.loss()


def _stem(net: ModelBuilder) -> None:
    net.conv(32, 3, stride=2, batch_norm=True)
    net.conv(32, 3, batch_norm=True)
    net.conv(64, 3, pad=1, batch_norm=True)
    net.pool("max", 3, stride=2)
    net.conv(80, 1, batch_norm=True)
    net.conv(192, 3, batch_norm=True)
    net.pool("max", 3, stride=2)


def _chain(net: ModelBuilder, name: str, source: str, *layers: tuple[int, Kernel]) -> str:
    """Add convolutions one after another that keep the positions, and return the name of the last."""
    for i, (channels, kernel) in enumerate(layers, 1):
        pad = kernel // 2 if isinstance(kernel, int) else (kernel[0] // 2, kernel[1] // 2)
        source = net.conv(channels, kernel, source, pad=pad, batch_norm=True, name=f"{name}_{i}")
    return source


def _pooled(net: ModelBuilder, name: str, source: str, channels: int) -> str:
    """Add average pooling and a 1x1 convolution, and return the name of the latter."""
    pooled = net.pool("average", 3, source, stride=1, pad=1, name=f"{name}.branch_pool_0")
    return _chain(net, f"{name}.branch_pool", pooled, (channels, 1))


def _block_a(net: ModelBuilder, name: str, pool_channels: int) -> None:
    source = net.last
    branches = (
        _chain(net, f"{name}.branch1x1", source, (64, 1)),
        _chain(net, f"{name}.branch5x5", source, (48, 1), (64, 5)),
        _chain(net, f"{name}.branch3x3dbl", source, (64, 1), (96, 3), (96, 3)),
        _pooled(net, name, source, pool_channels),
    )
    net.concat(branches, name=f"{name}.concat")


def _block_b(net: ModelBuilder, name: str) -> None:
    source = net.last
    wide = net.conv(384, 3, source, stride=2, batch_norm=True, name=f"{name}.branch3x3_1")
    _chain(net, f"{name}.branch3x3dbl", source, (64, 1), (96, 3))
    double = net.conv(96, 3, stride=2, batch_norm=True, name=f"{name}.branch3x3dbl_3")
    pooled = net.pool("max", 3, source, stride=2, name=f"{name}.branch_pool")
    net.concat((wide, double, pooled), name=f"{name}.concat")


def _block_c(net: ModelBuilder, name: str, c: int) -> None:
    source = net.last
    branches = (
        _chain(net, f"{name}.branch1x1", source, (192, 1)),
        _chain(net, f"{name}.branch7x7", source, (c, 1), (c, (1, 7)), (192, (7, 1))),
        _chain(net, f"{name}.branch7x7dbl", source, (c, 1), (c, (7, 1)), (c, (1, 7)), (c, (7, 1)), (192, (1, 7))),
        _pooled(net, name, source, 192),
    )
    net.concat(branches, name=f"{name}.concat")


def _block_d(net: ModelBuilder, name: str) -> None:
    source = net.last
    _chain(net, f"{name}.branch3x3", source, (192, 1))
    three = net.conv(320, 3, stride=2, batch_norm=True, name=f"{name}.branch3x3_2")
    _chain(net, f"{name}.branch7x7x3", source, (192, 1), (192, (1, 7)), (192, (7, 1)))
    seven = net.conv(192, 3, stride=2, batch_norm=True, name=f"{name}.branch7x7x3_4")
    pooled = net.pool("max", 3, source, stride=2, name=f"{name}.branch_pool")
    net.concat((three, seven, pooled), name=f"{name}.concat")


def _block_e(net: ModelBuilder, name: str) -> None:
    source = net.last
    branches = [_chain(net, f"{name}.branch1x1", source, (320, 1))]
    for branch, layers in (("branch3x3", ((384, 1),)), ("branch3x3dbl", ((448, 1), (384, 3)))):
        # The last layer of the branch has two consumers, whose outputs are concatenated side by side.
        forked = _chain(net, f"{name}.{branch}", source, *layers)
        branches.append(_chain(net, f"{name}.{branch}_a", forked, (384, (1, 3))))
        branches.append(_chain(net, f"{name}.{branch}_b", forked, (384, (3, 1))))
    branches.append(_pooled(net, name, source, 192))
    net.concat(branches, name=f"{name}.concat")


register_model("inception-v3", _inception_v3, image=(3, 299, 299), classes=class_count())
