"""CosmoFlow: a 3-D network that predicts four cosmological parameters from a volume of dark matter.

Seven convolutions of 3x3x3 with 16, 32, 64, 128, 256, 256 and 256 channels, the fourth with stride 2, and
average pooling (3x3x3, stride 2) after each of them while the edge is above 2; then linear layers of 2048, 256
and 4 outputs, leaky ReLU in between, and the mean squared error.  The four channels of the input are redshifts.
Volumes of every size are reduced to 256 channels of 2x2x2, so that all have the same 9.44 million parameters.

Source:
    After Mathuriya et al., "CosmoFlow: using deep learning to learn the universe at scale", SC 2018 (seven
    convolutions, average pooling, three linear layers), in the form for larger volumes of Oyama et al., "The
    case for strong scaling in deep learning", IEEE TPDS 2021.
"""

from planner.models.builder import ModelBuilder
from planner.models.registry import Field, register_model

_CHANNELS = (16, 32, 64, 128, 256, 256, 256)
STRIDED = 4
"""Number of the convolution with stride 2, counted from 1."""
FINAL_EDGE = 2
"""Edge of the volume down to which pooling goes on."""


def _cosmoflow(net: ModelBuilder, *, size: int) -> None:
    for i, channels in enumerate(_CHANNELS, 1):
        net.conv(channels, 3, stride=2 if i == STRIDED else 1, pad=1, activation="leaky_relu")
        if net.positions()[0] > FINAL_EDGE:
            net.pool("average", 3, stride=2, pad=1)
    for channels in (2048, 256):
        net.linear(channels, activation="leaky_relu")
    net.linear(4)
    net.loss("mean_squared_error", name="loss")


def _image(*, size: int) -> tuple[int, ...]:
    return (4, size, size, size)


register_model("cosmoflow", _cosmoflow, image=_image, size=Field(default=128, low=64, high=512, power_of_two=True))
