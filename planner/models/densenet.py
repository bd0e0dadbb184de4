"""DenseNet-121.

Every layer of a dense block reads the outputs of all layers before it.  In this graph each layer concatenates its new
features with one running tensor and the next reads the result, instead of reading all outputs separately.  Values are
the same, and so are copies, because implementations concatenate before every layer too; but node and edge elimination
reduce this graph to a point, while a block of 24 layers that read all outputs would be a complete graph of 24 nodes,
which no order of elimination makes narrow.

Source:
    Huang et al., "Densely connected convolutional networks", CVPR 2017, Table 1 (growth rate 32).
"""

from planner.models.builder import ModelBuilder
from planner.models.registry import class_count, register_model

_DEPTHS = (6, 12, 24, 16)
GROWTH = 32
BOTTLENECK = 4
"""Channels between the two convolutions of a dense layer, in growth rates."""


def _densenet121(net: ModelBuilder, *, classes: int) -> None:
    net.conv(64, 7, stride=2, pad=3, batch_norm=True)
    net.pool("max", 3, stride=2, pad=1)
    for block, depth in enumerate(_DEPTHS, 1):
        for i in range(1, depth + 1):
            _dense_layer(net, f"block{block}.{i}")
        if block < len(_DEPTHS):
            net.batch_norm(name=f"transition{block}.norm")
            net.conv(net.channels() // 2, 1, bias=False, activation=None, name=f"transition{block}.conv")
            net.pool("average", 2, name=f"transition{block}.pool")
    net.batch_norm(name="norm")
    net.global_pool()
    net.linear(classes)
    net.loss()


def _dense_layer(net: ModelBuilder, name: str) -> None:
    running = net.last
    net.batch_norm(name=f"{name}.norm")
    net.conv(BOTTLENECK * GROWTH, 1, batch_norm=True, name=f"{name}.conv1")
    features = net.conv(GROWTH, 3, pad=1, bias=False, activation=None, name=f"{name}.conv2")
    net.concat((running, features), name=f"{name}.concat")


register_model("densenet121", _densenet121, image=(3, 224, 224), classes=class_count())
