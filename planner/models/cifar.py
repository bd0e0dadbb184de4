"""AlexNet, VGG-11 and ResNet for images of 3 x 32 x 32, such as CIFAR's: small enough for real runs without a GPU.

Source:
    ``alexnet-cifar``: the channels of Krizhevsky, "One weird trick for parallelizing convolutional neural networks",
    2014, with windows and linear layers for small images.
    ``vgg11-cifar``: the convolutions of Simonyan & Zisserman, ICLR 2015, Table 1, column A; they reduce an image to
    512 elements, so one hidden linear layer of that width replaces two of 4096.
    ``resnet-cifar``: He et al., "Deep residual learning for image recognition", CVPR 2016, Sec. 4.2: 6n + 2 layers.
    Its shortcuts pad channels with zeros; here the two that change the shape are 1x1 convolutions, as in its option B.
"""

from planner.models.builder import ModelBuilder
from planner.models.registry import Field, class_count, register_model
from planner.models.resnet import basic_block
from planner.models.vgg import VGG_DEPTHS, convolutions

IMAGE = (3, 32, 32)


def _alexnet(net: ModelBuilder, *, classes: int) -> None:
    net.conv(64, 5, stride=2, pad=2)
    net.pool("max", 2)
    net.conv(192, 5, pad=2)
    net.pool("max", 2)
    for channels in (384, 256, 256):
        net.conv(channels, 3, pad=1)
    net.pool("max", 2)
    for _ in range(2):
        net.linear(512, activation="relu", dropout=0.5)
    net.linear(classes)
    net.loss()


def _vgg11(net: ModelBuilder, *, classes: int) -> None:
    convolutions(net, VGG_DEPTHS["vgg11"])
    net.linear(512, activation="relu", dropout=0.5)
    net.linear(classes)
    net.loss()


def _resnet(net: ModelBuilder, *, depth: int, classes: int) -> None:
    net.conv(16, 3, pad=1, batch_norm=True)
    for stage, channels in enumerate((16, 32, 64), 1):
        for i in range((depth - 2) // 6):
            basic_block(net, f"layer{stage}.{i}", channels, 2 if stage > 1 and i == 0 else 1)
    net.global_pool()
    net.linear(classes)
    net.loss()


register_model("alexnet-cifar", _alexnet, image=IMAGE, classes=class_count(10))
register_model("vgg11-cifar", _vgg11, image=IMAGE, classes=class_count(10))
register_model(
    "resnet-cifar", _resnet, image=IMAGE, depth=Field(default=20, low=8, high=1202, step=6), classes=class_count(10)
)
