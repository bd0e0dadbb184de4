"""Memory of processors: what is known of oneDNN, of matrix products for weight gradients, and of gloo's messages.

**Convolutions** run in oneDNN.  It keeps channels in blocks and copies operands that lie otherwise; images of many
positions are faster with their channels last.

**Gradients of a convolution's weights** run in oneDNN or as matrix products.  oneDNN brings the weights into an order
of its own, and their gradient back from it, in up to twice the time of the arithmetic where parts have many weights and
few windows; there one product with all windows, or one for each kernel position, is faster.  A kernel position is one
place of the kernel, such as its left upper corner; it reads its inputs without the padding:

    kernel 3, stride 1, padding 1, input x0 x1 x2 x3     position 0 reads -  x0 x1 x2     for outputs 1 to 3
    outputs y0 y1 y2 y3                                  position 1 reads x0 x1 x2 x3     for all
                                                         position 2 reads x1 x2 x3 -      for outputs 0 to 2

**Messages** travel over gloo: each is received in a buffer of its own, and a sender notices that one has left only when
it next sends or expects something.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Bools, Floats, Ints
from planner.lowering.send_phases import SendPhases
from planner.memory.backend_memory import SCRATCH_PHASES, ConvolutionParts, TransposedParts

CHANNELS_LAST_POSITIONS = 144
"""Positions of a region from which the executor convolves with the channels last on a processor: measured on two
cores, that saves a fifth to a half of the time at 12 x 12 positions and above, and costs up to a half at 8 x 8."""
_OWN_WINDOW = 3
"""Widest window for which oneDNN has a kernel of its own for the gradient of weights of a group for each channel."""
_WIDEST_WINDOW = 14
"""Widest window for which it has one for the gradient of other weights: for wider ones it multiplies matrices."""
_LIBRARY_SAMPLES = 16
"""Samples from which a thread of PyTorch leaves convolutions of single positions to oneDNN: of fewer, it multiplies
matrices itself."""
_COLUMN_ELEMENTS, _COLUMN_KERNEL = 20480, 3
"""Most elements of a single sample, and widest kernel, that PyTorch leaves to its own products."""
_SCRATCHPAD_BYTES, _SPREAD_BYTES, _LEAST_SPREAD_BYTES = 8216, 28696, 8192
"""What oneDNN takes beside the weights' blocks to convolve tensors with their channels last, and beside what it spreads
out, which is so much at least."""
_PLAIN_CHANNELS, _GRADIENT_BLOCK = 3, 8
"""Input channels up to which, or with blocks of 8 of which alone, oneDNN computes the gradient of weights from images
as they are, without blocks; and the channels of its blocks there for other images of few channels."""

WEIGHTS_A_WINDOW = 4096
"""Weights for each of a part's windows from which one product with all windows takes 0.2 to 0.9 of oneDNN's time,
measured on one core."""
POSITION_WEIGHTS_A_WINDOW, POSITION_WINDOWS, POSITION_SHARE, MOST_POSITIONS = 512, 128, 0.72, 9
"""Least weights for each window, least windows, largest share of the windows' elements that lies inside the tensor, and
most kernel positions for which a product for each kernel position takes 0.3 to 1.0 of oneDNN's time, 0.8 in the median,
measured on one core."""

MESSAGE_JOIN_BYTES = 64 * 1024
"""Size of a message up to which it takes several regions of one tensor for one device that are ready at once: a message
costs gloo about 0.4 ms, which is 64 KB at the 150 MB/s that it moves in messages of that size."""
PAIR_BYTES = 4 * 1024 * 1024
"""Size of a buffer that two ranks sum over gloo at a time, each half of it in a receive buffer of its own."""


class GradientForm(IntEnum):
    """Way to compute the gradient of a convolution's weights."""

    LIBRARY = 0
    """Convolution of oneDNN."""
    WINDOWS = 1
    """One product of the output's gradient with all windows."""
    POSITIONS = 2
    """Product for each kernel position with what it reads inside the tensor: padding is left out."""


@dataclass(frozen=True, slots=True)
class CpuMemory:
    """Memory of processors: reordered operands, scratch of products, and buffers of messages."""

    block: int
    """Channels that oneDNN keeps together; it fills the last block up."""

    has_message_buffers: ClassVar[bool] = True
    normalisation_copies: ClassVar[int] = 1

    def channels_last(self, region: Ints, *, channels: int, element_bytes: int) -> bool:
        """Return whether images of floats, of several channels and enough positions, have their channels last."""
        return bool(
            element_bytes == 4
            and channels > 1
            and region.shape[1] == 4
            and region[:, 2:].prod(axis=1).max() >= CHANNELS_LAST_POSITIONS
        )

    def convolution_scratch(self, parts: ConvolutionParts) -> tuple[dict[str, Floats], Bools]:
        """Return what oneDNN and matrix products take; products write the gradient where it is synchronised."""
        operation, part, size = parts.operation, parts.part, float(parts.element_bytes)
        reordered = dict.fromkeys(SCRATCH_PHASES, np.zeros(len(parts.windows)))
        if parts.element_bytes == 4:
            reordered = _reordered_bytes(parts, self.block)
            own, own_bytes = _by_columns(parts)
            reordered = {phase: np.where(own, own_bytes[phase], library) for phase, library in reordered.items()}
        kernel = KernelPositions(
            kernel=operation.kernel,
            stride=operation.stride,
            dilation=operation.dilation,
            outputs=parts.outputs,
            inputs=parts.windows[:, 2:],
            pad=parts.pad,
        )
        channels = parts.windows[:, 1].astype(np.float64)
        forms = gradient_forms(kernel, filters=part.channels * channels, samples=part.samples, groups=operation.groups)
        scratch = scratch_elements(
            kernel, forms, channels=channels, output_channels=part.channels, samples=part.samples
        )
        by_product = forms != GradientForm.LIBRARY
        weight_gradient = np.where(by_product, scratch * size, reordered["weight_gradient"])
        return {**reordered, "weight_gradient": weight_gradient}, by_product

    def transposed_scratch(self, parts: TransposedParts) -> dict[str, Floats]:
        """Return what oneDNN takes, or PyTorch's own products with columns for a single small sample.

        oneDNN copies weights into blocks where channels are last, and else all tensors.
        """
        copied, forward = parts.weights, parts.inputs / parts.samples + _SPREAD_BYTES
        library = [2 * copied + forward, 2 * copied + _SCRATCHPAD_BYTES, 3 * copied]
        if not parts.channels_last:
            library = [2 * parts.outputs, parts.outputs + copied, parts.outputs + parts.inputs]
        small = (parts.samples == 1) & (parts.inputs <= _COLUMN_ELEMENTS * parts.element_bytes)
        own = small & (min(parts.kernel[-2:]) <= _COLUMN_KERNEL)
        columns = parts.columns + (copied if parts.channels_last else 0.0)
        return {phase: np.where(own, columns, size) for phase, size in zip(SCRATCH_PHASES, library, strict=True)}

    def pair_buffer_bytes(self, buffer_bytes: float) -> float:
        """Return half of what two ranks sum at a time."""
        return min(buffer_bytes, PAIR_BYTES) / 2

    def released_s(self, send_phases: SendPhases, transfers: Ints, end_s: Floats) -> Floats:
        """Return when senders next send or expect something after the transfers have left."""
        return send_phases.noticed_s(transfers, end_s)


def _by_columns(parts: ConvolutionParts) -> tuple[Bools, dict[str, Floats]]:
    """Return which parts PyTorch computes by its own products with columns of windows, and what these take by phase.

    It does so for a single small sample, unless the kernel is large in both dimensions or channels are in groups; of a
    volume it leaves the last dimension out of the sample's size.  Weights are brought into the order of the tensors;
    the gradient of the input needs no columns at once, but all of them for a volume.

    Source:
        PyTorch 2.13, ``aten/src/ATen/native/Convolution.cpp``, ``ConvParams::use_mkldnn``, and ``ConvolutionMM2d.cpp``.
    """
    operation, part, size = parts.operation, parts.part, float(parts.element_bytes)
    volume, dims = math.prod(operation.kernel), len(operation.kernel)
    large = dims > 1 and min(operation.kernel[-2:]) > _COLUMN_KERNEL
    allowed = operation.groups == 1 and not large
    own = allowed & (parts.windows[:, 0] == 1) & (parts.windows[:, :4].prod(axis=1) <= _COLUMN_ELEMENTS)
    whole = volume == max(operation.stride) == 1  # the input itself has the columns
    every = parts.windows[:, 1] * parts.outputs.prod(axis=1) * (volume * size)
    columns = every * (not whole)
    weights = part.channels * parts.windows[:, 1] * (volume * size if parts.channels_last and volume > 1 else 0.0)
    gradient = every if dims > 2 else weights
    return own, {"forward": columns + weights, "activation_gradient": gradient, "weight_gradient": columns + weights}


def _reordered_bytes(parts: ConvolutionParts, block: int) -> dict[str, Floats]:
    """Return the copies that oneDNN makes of a convolution's operands.

    It copies the weights into blocks; where the tensors have their channels first, it copies these too.  A convolution
    of one group, or of a group for each channel, fills its blocks up; other groups are copied as they are.  Of a few
    channels, unless every position is a window of its own, the input is read as it is, and the gradient of the weights
    takes blocks of 8.  With strides the gradient of the input is made beside two more of its size, or beside
    one and the weights.
    """
    if parts.channels_last:
        return _reordered_weights(parts, block)
    operation, part, windows, size = parts.operation, parts.part, parts.windows, float(parts.element_bytes)
    volume, groups = math.prod(operation.kernel), operation.groups
    channels, made_channels = windows[:, 1].astype(float), part.channels
    group_in = channels if groups == 1 else np.full(len(windows), part.inputs[0].size("channel") / groups)
    group_out = operation.channels / groups
    filled = groups == 1 or (group_in.max() == group_out == 1)

    def copies(together: int) -> tuple[Floats, Floats, Floats]:
        """Return the bytes of the input, the output and the weights in blocks of some channels."""
        return (
            given / channels * _filled(channels, together),
            part.columns * _filled(made_channels, together) * size,
            _filled(made_channels, together) * _filled(group_in, together if groups == 1 else 1) * volume * size,
        )

    given, outputs = windows.prod(axis=1) * size, part.outputs * size
    inputs, made, blocked = copies(block if filled else 1)
    strided = groups == 1 and max(operation.stride) > 1
    few = (groups == 1) & (volume > 1 or strided) & (group_in < block)
    forward = made + np.where(few, blocked / _filled(group_in, block) * group_in, inputs + blocked)
    weight_gradient = np.where(few, sum(copies(_GRADIENT_BLOCK)), inputs + made + blocked)
    plain = few & (group_in <= _PLAIN_CHANNELS) & ((group_in == _PLAIN_CHANNELS) | (block > _GRADIENT_BLOCK))
    weight_gradient = np.where(plain, forward, weight_gradient)
    weights = part.channels * group_in * volume * size
    wide = filled and groups > 1 and max(operation.kernel) > _OWN_WINDOW
    if wide or (not filled and (group_in.max() % (block // 2) or group_out % (block // 2))):
        weight_gradient = weights  # small products instead
    return {
        "forward": np.maximum(forward, made + outputs) - outputs,
        "activation_gradient": np.maximum(np.maximum(given, blocked) + given, _spread_bytes(parts, block) + outputs)
        if strided
        else np.maximum(inputs + blocked + made, inputs + given) - given,
        "weight_gradient": np.maximum(weight_gradient, blocked + weights) - weights,
    }


def _reordered_weights(parts: ConvolutionParts, block: int) -> dict[str, Floats]:
    """Return the copies of weights where the tensors have their channels last.

    They are brought into the order of the tensors, and from there into blocks; their gradient comes back the same way.
    Forward, blocks are of the channels that are made, backward of those that are read, and of both for the gradient of
    the weights.  Weights for single positions have both orders.  With strides, the gradient of one sample's output is
    spread out, with what windows reach over its border; for wide windows, all windows of one sample.  Of a group for
    each channel only the blocks are made: of channels, or where the window is wider than the library's own kernels, of
    each group as of others.
    """
    operation, part, size = parts.operation, parts.part, float(parts.element_bytes)
    groups, single = operation.groups, math.prod(operation.kernel) == 1
    made = np.minimum(part.channels, operation.channels / groups)
    whole = np.full(len(made), part.inputs[0].size("channel") / groups)
    read: Floats = parts.windows[:, 1].astype(np.float64) if groups == 1 else whole
    bytes_a_pair: Floats = part.channels / made * math.prod(operation.kernel) * size

    def blocks(of_read: int, of_made: int) -> Floats:
        return np.asarray(bytes_a_pair * _filled(read, of_read) * _filled(made, of_made), dtype=np.float64)

    plain, both = blocks(1, 1), blocks(block, block)
    if groups > 1 and read.max() == made.max() == 1:
        channels = _filled(part.channels, block) * math.prod(operation.kernel) * size
        gradient = channels if max(operation.kernel) <= _OWN_WINDOW else both
        return {"forward": channels, "activation_gradient": channels, "weight_gradient": plain + gradient}
    if groups > 1:
        copied = plain + np.where(np.maximum(read, made) < block, plain, both)
        copied = copied + (_SCRATCHPAD_BYTES if block == _GRADIENT_BLOCK else 0)
        return {"forward": copied, "activation_gradient": copied, "weight_gradient": 2 * plain + both}
    strided = float(max(operation.stride) > 1)
    sample = part.outputs / part.samples * size  # the output of one
    reordered, taken = plain, np.ones_like(plain)
    few = read < block if block > _GRADIENT_BLOCK else read == _PLAIN_CHANNELS
    gradient = 2 * plain + np.where(few, blocks(1, block), both)
    if single:
        reordered = np.zeros_like(plain)
        taken = np.asarray(np.maximum(strided, part.samples >= _LIBRARY_SAMPLES), dtype=np.float64)
        gradient = np.maximum(plain + both, strided * sample / made * read) * taken
    elif operation.kernel[-1] > _WIDEST_WINDOW:
        given = parts.windows[:, 1:].prod(axis=1) * size
        gradient = 5 * plain + given + sample / made * read * math.prod(operation.kernel)
    return {
        "forward": taken * (reordered + blocks(1, block) + _SCRATCHPAD_BYTES),
        "activation_gradient": reordered + _spread_bytes(parts, block)
        if strided
        else taken * (reordered + blocks(block, 1) + _SCRATCHPAD_BYTES),
        "weight_gradient": gradient,
    }


def _spread_bytes(parts: ConvolutionParts, block: int) -> Floats:
    """Return what oneDNN takes for the gradient of a strided convolution's input: blocks, and one sample spread out."""
    operation, part, size = parts.operation, parts.part, float(parts.element_bytes)
    read = _filled(parts.windows[:, 1].astype(np.float64), block)
    blocks = part.channels * read * math.prod(operation.kernel) * size
    spread = part.channels * size * (parts.outputs + (np.array(operation.kernel) - 1) // operation.stride).prod(axis=1)
    return np.asarray(blocks + np.maximum(spread, _LEAST_SPREAD_BYTES) + _SPREAD_BYTES)


def _filled(channels: Floats, block: int) -> Floats:
    """Fill channels up to whole blocks."""
    return np.asarray(np.ceil(channels / block) * block)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPositions:
    """P parts of a convolution along its position dimensions; arrays have shape (P, dimensions)."""

    kernel: Sequence[int]
    stride: Sequence[int]
    dilation: Sequence[int]
    outputs: Ints
    """Positions of the output."""
    inputs: Ints
    """Positions that are convolved, without ``pad``."""
    pad: Ints
    """Zeros on both sides, which no memory holds."""

    @property
    def count(self) -> int:
        """Number of kernel positions."""
        return math.prod(self.kernel)

    def ranges(self, dim: int, place: int) -> tuple[Ints, Ints, Ints]:
        """Return what one place of the kernel reads along a dimension.

        Returns:
            The first output whose window has that place inside the tensor, the end of these outputs, and the input that
            the first of them reads there; shape (P,) each.
        """
        stride, offset = self.stride[dim], place * self.dilation[dim] - self.pad[:, dim]
        low = np.maximum(-(offset // stride), 0)
        high = np.minimum((self.inputs[:, dim] - 1 - offset) // stride + 1, self.outputs[:, dim])
        return low, np.maximum(high, low), low * stride + offset

    def share(self) -> Floats:
        """Return the share of the windows' elements that lies inside the tensor, shape (P,)."""
        share = np.ones(len(self.outputs))
        for dim, kernel in enumerate(self.kernel):
            inside = sum(high - low for low, high, _ in (self.ranges(dim, place) for place in range(kernel)))
            share *= inside / (kernel * np.maximum(self.outputs[:, dim], 1))
        return share

    def copies(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield, for each kernel position, its outputs and its inputs that must be copied to lie side by side.

        Yields:
            Numbers of positions, shape (P,) each; 0 where they are neighbours in memory already.
        """
        for position in itertools.product(*map(range, self.kernel)):
            ranges = [self.ranges(dim, place) for dim, place in enumerate(position)]
            counts = np.stack([high - low for low, high, _ in ranges], axis=1)
            yield _apart(counts, self.outputs, np.ones_like(self.stride)), _apart(counts, self.inputs, self.stride)


def _apart(counts: Ints, sizes: Ints, stride: Sequence[int] | Ints) -> Ints:
    """Return how many positions of a box must be copied: all, or 0 where they are neighbours in the tensor.

    Args:
        counts: Shape (P, dimensions): positions of the box.
        sizes: Shape (P, dimensions): positions of the tensor.
        stride: Step between positions in each dimension.
    """
    outside = np.cumprod(counts, axis=1) // np.maximum(counts, 1)
    apart = ((counts < sizes) & (outside > 1)) | ((counts > 1) & (np.asarray(stride) > 1))
    return np.where(apart.any(axis=1), counts.prod(axis=1), 0)


def gradient_forms(kernel: KernelPositions, *, filters: Floats, samples: Floats, groups: int) -> NDArray[np.int8]:
    """Return how parts compute the gradient of their weights, as ``GradientForm``.

    Args:
        kernel: P parts.
        filters: Shape (P,): pairs of an input and an output channel.
        samples: Shape (P,).
        groups: Groups of channels.

    Returns:
        Shape (P,).
    """
    if groups > 1:
        return np.zeros(len(samples), dtype=np.int8)
    windows = samples * kernel.outputs.prod(axis=1)
    weights = filters * kernel.count
    by_position = (
        (weights >= POSITION_WEIGHTS_A_WINDOW * windows)
        & (windows >= POSITION_WINDOWS)
        & (kernel.share() <= POSITION_SHARE)
        & (kernel.count <= MOST_POSITIONS)
    )
    others = np.where(weights >= WEIGHTS_A_WINDOW * windows, GradientForm.WINDOWS, GradientForm.LIBRARY)
    return np.where(by_position, GradientForm.POSITIONS, others).astype(np.int8)


def scratch_elements(
    kernel: KernelPositions, forms: NDArray[np.int8], *, channels: Floats, output_channels: Floats, samples: Floats
) -> Floats:
    """Return the elements that matrix products take beside the gradient itself.

    A product with all windows takes the output's gradient and the padded input in another order, and the windows, or
    before these the padded input.  Products by kernel position take both operands in another order, what one of them
    copies of these, and the gradient by kernel position.

    Args:
        kernel: P parts.
        forms: Shape (P,): ``GradientForm`` of each.
        channels: Shape (P,): input channels.
        output_channels: Shape (P,).
        samples: Shape (P,).

    Returns:
        Shape (P,); 0 where oneDNN computes the gradient.
    """
    outputs, inputs = kernel.outputs.prod(axis=1) * samples, kernel.inputs.prod(axis=1) * samples
    padded = samples * channels * (kernel.inputs + 2 * kernel.pad).prod(axis=1)
    ordered = (samples > 1) * (outputs * output_channels + padded)
    # a kernel of one position that reads every input needs no windows: they are the input
    several = (kernel.count > 1) | ((kernel.outputs > 1) & (np.array(kernel.stride) > 1)).any(axis=1)
    windows = np.maximum((kernel.pad > 0).any(axis=1) * padded, several * outputs * channels * kernel.count)
    elements = np.where(forms == GradientForm.WINDOWS, ordered + windows, 0.0)
    if (forms == GradientForm.POSITIONS).any():
        turned = outputs * output_channels + inputs * channels + kernel.count * channels * output_channels
        copies = [samples * (made * output_channels + read * channels) for made, read in kernel.copies()]
        elements = np.where(forms == GradientForm.POSITIONS, turned + np.max(copies, axis=0), elements)
    return elements
