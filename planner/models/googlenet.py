"""GoogLeNet without its auxiliary classifiers.

Source:
    Szegedy et al., "Going deeper with convolutions", CVPR 2015, Table 1, with batch normalisation instead of
    response normalisation, and with 3x3 windows in the branch where the paper has 5x5: the network that
    torchvision trains (6,624,904 parameters).
"""

from planner.models.builder import ModelBuilder
from planner.models.registry import class_count, register_model

BLOCKS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
"""Channels of each block: 1x1; reduction and 3x3; reduction and second 3x3; 1x1 behind the pooling."""
POOL_AFTER = {"3b": (3, 2), "4e": (2, 2)}
"""Kernel and stride of the pooling that follows a block."""


def _googlenet(net: ModelBuilder, *, classes: int) -> None:
    net.conv(64, 7, stride=2, pad=3, batch_norm=True)
    net.pool("max", 3, stride=2, ceil_mode=True)
    net.conv(64, 1, batch_norm=True)
    net.conv(192, 3, pad=1, batch_norm=True)
    net.pool("max", 3, stride=2, ceil_mode=True)
    for name, channels in BLOCKS.items():
        _block(net, f"inception{name}", channels)
        if name in POOL_AFTER:
            kernel, stride = POOL_AFTER[name]
            net.pool("max", kernel, stride=stride, ceil_mode=True)
    net.global_pool()
    net.linear(classes)
    net.loss()


def _block(net: ModelBuilder, name: str, widths: tuple[int, ...]) -> None:
    one, reduce3, three, reduce5, five, pooled = widths
    source = net.last
    branches = [net.conv(one, 1, source, batch_norm=True, name=f"{name}.branch1")]
    for branch, reduced, channels in ((2, reduce3, three), (3, reduce5, five)):
        net.conv(reduced, 1, source, batch_norm=True, name=f"{name}.branch{branch}_1")
        branches.append(net.conv(channels, 3, pad=1, batch_norm=True, name=f"{name}.branch{branch}_2"))
    net.pool("max", 3, source, stride=1, pad=1, name=f"{name}.branch4_pool")
    branches.append(net.conv(pooled, 1, batch_norm=True, name=f"{name}.branch4"))
    net.concat(branches, name=f"{name}.concat")


register_model("googlenet", _googlenet, image=(3, 224, 224), classes=class_count())
