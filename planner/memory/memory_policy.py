"""What a part of a layer holds beside its inputs and its output: for the backward pass, and while it computes."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Bools, ConfigError, Floats
from planner.graph import ComputationGraph, Layer, Operation
from planner.lowering import Program
from planner.memory.cpu_backend import GradientForm, KernelPositions, gradient_forms, scratch_numbers
from planner.operations import Convolution, Linear, Part, PartialProduct, Pooling
from planner.parallel import ConfigSpace, Regions, held_regions, needed_regions

__all__ = [
    "CHANNELS_LAST_POSITIONS",
    "MOMENTUM",
    "OPTIMIZERS",
    "MemoryPolicy",
    "PartMemory",
    "part_memories",
]


OPTIMIZERS = {"sgd": 0, "momentum": 1, "adam": 2}
"""Numbers of state that an optimizer keeps for every trained one, beside its value and its gradient."""
CHANNELS_LAST_POSITIONS = 144
"""Positions of a region from which the executor convolves with the channels last on a processor: measured on two
cores, that saves a fifth to a half of the time at 12 x 12 positions and above, and costs up to a half at 8 x 8."""
_BLOCK = 16
"""Channels that oneDNN keeps together where processors have AVX-512; it fills the last block up."""
_FEW = 4
"""Input channels up to which it reads images as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPolicy:
    """What is kept beside the tensors of the network depends on the optimizer and on where a plan runs."""

    optimizer: str = "momentum"
    """One of ``OPTIMIZERS``."""
    host: bool = False
    """Whether ranks compute on processors: then every message has a buffer of its own that is always there, and
    convolutions copy tensors into layouts of their own.  What a GPU's libraries take as workspace is left out."""

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise ConfigError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.optimizer!r}")

    @property
    def states(self) -> int:
        """Numbers of state for every trained one."""
        return OPTIMIZERS[self.optimizer]


MOMENTUM = MemoryPolicy()
"""SGD with momentum, on GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartMemory:
    """Bytes of every part of a layer, of what it takes at once; arrays of shape (parts,)."""

    output: Floats
    extra: Floats
    """Kept for the backward pass beside inputs, output and copies of inputs."""
    separate: bool
    """Whether the output is made from a tensor that is kept too, and therefore after it."""
    keeps_output: bool
    keeps_inputs: Bools
    """Whether inputs themselves are kept, not copies."""
    copies: Floats
    """Copies of inputs, padded or in another layout, which are kept in their place."""
    transforms: bool
    """Whether the gradient of the output is turned into another before both gradients are computed."""
    passes_on: bool
    """Whether gradients of the inputs are views of that of the output."""
    last: bool
    """Whether the output has its channels last."""
    gradient_last: bool
    """Whether the gradient of the first input has."""
    work: dict[str, Floats]
    """By phase, what it takes while it computes, beside its result."""
    placed: Bools
    """Whether the gradients of its parameters are written where they are exchanged."""


def part_memories(program: Program, memory_policy: MemoryPolicy) -> list[PartMemory]:
    """By layer, what its parts hold."""
    known = _Layouts(program, memory_policy)
    return [known.memory(i) for i in range(len(program.graph.layers))]


class _Layouts:
    """Memory of parts, and in which layout each layer's output is."""

    def __init__(self, program: Program, memory_policy: MemoryPolicy) -> None:
        self.program, self.memory_policy = program, memory_policy
        self.graph = program.graph
        self.last: list[bool] = []
        """By layer seen so far, whether its output has its channels last."""
        self.quick = memory_policy.host and self.graph.element_bytes == 4

    @cached_property
    def _cut_graph(self) -> ComputationGraph:
        return self.graph.with_batch(self.graph.batch // self.program.micro_batching.parts)

    def memory(self, i: int) -> PartMemory:
        """What the parts of a layer hold; layers must be asked for in order."""
        program, micro_batching = self.program, self.program.micro_batching.of(i) > 1
        layer = (self._cut_graph if micro_batching else self.graph).layers[i]
        space = (program.micro_batch_spaces if micro_batching else program.spaces)[i]
        boxes = held_regions(space)
        sizes = {dim: (boxes.high - boxes.low)[:, d].astype(float) for d, dim in enumerate(layer.output.dims)}
        part = Part(layer.input_shapes, layer.output, sizes)
        kept, size = layer.operation.kept(part), float(self.graph.element_bytes)
        output, nothing = part.outputs * size, np.zeros(len(boxes.low))
        copies, work, copied = nothing.copy(), dict.fromkeys(_PHASES, nothing), np.zeros(len(nothing), dtype=bool)
        operation, last = layer.operation, bool(self._layout_of(i, layer, space, 0)) if layer.inputs else False
        given_last, placed = last, np.full(len(nothing), _is_linear(operation))
        if isinstance(operation, Convolution):
            given, windows, pad = _windows(layer, space)
            wants = self._wants(layer, given)
            copied = (windows != given).any(axis=1) | (last != wants) | self._is_slice(i, layer, space)
            copies = np.where(copied, windows.prod(axis=1) * size, 0.0)
            last = given_last = wants
            if self.quick:
                work = _convolution_work(layer, operation, windows, part, wants)
            if self.memory_policy.host:
                placed, scratch = _products(operation, part, _taps(operation, boxes, windows, pad))
                work["weight_gradient"] = np.where(placed, scratch * size, work["weight_gradient"])
        elif isinstance(operation, Pooling) and self.quick and self._gradient_last(i, last) != last:
            work = {**work, "activation_gradient": output}  # it is copied into the layout of the input
        elif isinstance(operation, Linear):
            read = needed_regions(space, operation.needs(0, layer.input_shapes), layer.input_shapes[0])
            copied |= last and math.prod(layer.input_shapes[0].positions) > 1
            copies, last = np.where(copied, read.volume * size, 0.0), False
        self.last.append(last)
        return PartMemory(
            output=output, extra=kept.elements * size + kept.index_bytes + nothing, separate=kept.before_output,
            keeps_output=kept.output, keeps_inputs=~copied & kept.inputs, copies=copies, transforms=kept.transforms,
            passes_on=kept.passes_on, last=last, work=work, placed=placed,
            gradient_last=given_last and not isinstance(operation, Linear),
        )  # fmt: skip

    def _gradient_last(self, i: int, last: bool) -> bool:
        """Whether the gradient of an output comes with its channels last."""
        consumers = self.graph.consumers[i]
        if not consumers:
            return last
        v, micro_batching = consumers[0].consumer, self.program.micro_batching.of(consumers[0].consumer) > 1
        layer = (self._cut_graph if micro_batching else self.graph).layers[v]
        if not isinstance(layer.operation, Convolution):
            return last and not isinstance(layer.operation, Linear)
        space = (self.program.micro_batch_spaces if micro_batching else self.program.spaces)[v]
        boxes = needed_regions(space, layer.operation.needs(0, layer.input_shapes), layer.input_shapes[0])
        return self._wants(layer, boxes.high - boxes.low)

    def _is_slice(self, i: int, layer: Layer, space: ConfigSpace) -> bool:
        """Whether parts read some of what their own device made, not all of it."""
        if layer.inputs[0] == "input":
            return False
        u = self.graph.index[layer.inputs[0]]
        producer = (self.program.micro_batch_spaces if self.program.micro_batching.of(i) > 1 else self.program.spaces)[
            u
        ]
        boxes = needed_regions(space, layer.operation.needs(0, layer.input_shapes), layer.input_shapes[0])
        local = _is_local(producer, space, boxes.low, boxes.high)
        return local and bool(boxes.volume.max() < held_regions(producer).volume.max())

    def _wants(self, layer: Layer, given: NDArray[np.int64]) -> bool:
        """Whether a convolution reads its region with the channels last."""
        several = layer.input_shapes[0].size("channel") > 1
        return bool(
            self.quick and several and given.shape[1] == 4
            and given[:, 2:].prod(axis=1).max() >= CHANNELS_LAST_POSITIONS
        )  # fmt: skip

    def _layout_of(self, i: int, layer: Layer, space: ConfigSpace, slot: int) -> bool:
        """Whether a layer gets an input with its channels last."""
        source = layer.inputs[slot]
        if source == "input" or not self.quick:
            return False
        u = self.graph.index[source]
        producer = (self.program.micro_batch_spaces if self.program.micro_batching.of(i) > 1 else self.program.spaces)[
            u
        ]
        boxes = needed_regions(space, layer.operation.needs(slot, layer.input_shapes), layer.input_shapes[slot])
        if isinstance(layer.operation, Convolution) and not _is_local(producer, space, boxes.low, boxes.high):
            return self._wants(layer, boxes.high - boxes.low)  # assembled as it is wanted
        return self.last[u] and _is_local(producer, space, boxes.low, boxes.high)


_PHASES = ("forward", "activation_gradient", "weight_gradient")


def _is_local(producer: ConfigSpace, space: ConfigSpace, low: NDArray[np.int64], high: NDArray[np.int64]) -> bool:
    """Whether the parts of a layer find all that they read in what their own devices made."""
    own = held_regions(producer)
    place = {device: part for part, device in enumerate(producer.devices.tolist())}
    rows = [place.get(device, -1) for device in space.devices.tolist()]
    if min(rows) < 0:
        return False
    return bool((own.low[rows] <= low).all() and (high <= own.high[rows]).all())


def _windows(layer: Layer, space: ConfigSpace) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Sizes of the region that each part of a convolution reads, and of what it convolves: with the padding that the
    library cannot add by itself, shape (parts, D) each; and what it adds on both sides, (parts, D - 2)."""
    needs, shape, outputs = layer.operation.needs(0, layer.input_shapes), layer.input_shapes[0], held_regions(space)
    boxes = needed_regions(space, needs, shape)
    given = boxes.high - boxes.low
    found, pad = given.copy(), np.zeros_like(given[:, 2:])
    for d in range(2, given.shape[1]):
        need = needs[d]
        start = outputs.low[:, d] * need.stride - need.pad
        stop = (outputs.high[:, d] - 1) * need.stride - need.pad + need.dilation * (need.kernel - 1) + 1
        left, right = boxes.low[:, d] - start, stop - boxes.high[:, d]
        symmetric = (left >= right) & (left - right < need.stride)
        found[:, d] += np.where(symmetric, 0, left + right)
        pad[:, d - 2] = np.where(symmetric, left, 0)
    return given, found, pad


def _filled(channels: Floats | float) -> Floats:
    return np.asarray(np.ceil(np.asarray(channels) / _BLOCK) * _BLOCK)


def _convolution_work(
    layer: Layer, operation: Convolution, windows: NDArray[np.int64], part: Part, last: bool
) -> dict[str, Floats]:
    """Copies that oneDNN makes of a convolution's operands: of the weights, and of all where channels come first."""
    size, volume = 4.0, math.prod(operation.kernel)
    group_in = layer.input_shapes[0].size("channel") // operation.groups
    plain_in = group_in <= _FEW
    weights = part.channels * group_in * volume * size
    blocked = _filled(part.channels) * (group_in if plain_in else _filled(group_in)) * volume * size
    if last:
        return {"forward": 2 * blocked, "activation_gradient": 2 * blocked, "weight_gradient": 3 * blocked}
    given = windows.prod(axis=1) * size
    inputs = np.zeros_like(given) if plain_in else given / windows[:, 1] * _filled(windows[:, 1].astype(float))
    outputs = part.outputs * size
    made = part.columns * _filled(part.channels) * size
    return {
        "forward": np.maximum(inputs + blocked + made, made + outputs) - outputs,
        "activation_gradient": np.maximum(inputs + blocked + made, inputs + given) - given,
        "weight_gradient": np.maximum(inputs + made + blocked, blocked + weights) - weights,
    }


def _taps(
    operation: Convolution, outputs: Regions, windows: NDArray[np.int64], pad: NDArray[np.int64]
) -> KernelPositions:
    """Parts of a convolution along their positions."""
    return KernelPositions(
        kernel=operation.kernel, stride=operation.stride, dilation=operation.dilation,
        outputs=(outputs.high - outputs.low)[:, 2:], inputs=windows[:, 2:], pad=pad,
    )  # fmt: skip


def _products(operation: Convolution, part: Part, taps: KernelPositions) -> tuple[Bools, Floats]:
    """Which parts compute the gradient of their weights by matrix products, and numbers that these take beside it."""
    channels = part.inputs[0].size("channel")
    forms = gradient_forms(taps, filters=part.channels * channels, samples=part.samples, groups=operation.groups)
    scratch = scratch_numbers(taps, forms, channels=channels, output_channels=part.channels, samples=part.samples)
    return forms != GradientForm.LIBRARY, scratch


def _is_linear(operation: Operation) -> bool:
    return isinstance(operation.operation if isinstance(operation, PartialProduct) else operation, Linear)
