"""A 1-D network on raw audio: M5, four convolutions on four seconds at 8 kHz.

Source:
    Dai et al., "Very deep convolutional neural networks for raw waveforms", ICASSP 2017, Table 1, column M5
    (0.5 million parameters); padding keeps 8000, 2000, 500, 125 and 32 frames.
"""

from planner.models.builder import ModelBuilder
from planner.models.registry import class_count, register_model


def _conv1d(net: ModelBuilder, *, classes: int) -> None:
    net.conv(128, 80, stride=4, pad=38, batch_norm=True)
    net.pool("max", 4)
    for channels in (128, 256, 512):
        net.conv(channels, 3, pad=1, batch_norm=True)
        net.pool("max", 4, ceil_mode=True)
    net.global_pool()
    net.linear(classes)
    net.loss()


register_model("conv1d", _conv1d, image=(1, 32_000), classes=class_count(10))
