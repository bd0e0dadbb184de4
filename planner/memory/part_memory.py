"""Memory of the parts of a layer beside inputs and output: for the backward pass, and while they compute."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from planner.derivatives.recorded_memory import recorded_memory
from planner.graph.computation_graph import ComputationGraph, Edge, Layer
from planner.graph.data_sources import is_data
from planner.layouts.configurations import ConfigSpace, product_space
from planner.layouts.regions import Regions, held_regions, needed_regions, part_sizes
from planner.lowering.program import Program
from planner.memory.backend_memory import SCRATCH_PHASES, ConvolutionParts, TransposedParts
from planner.memory.memory_policy import MemoryPolicy
from planner.operations.base import ELEMENT_BYTES, Part
from planner.operations.convolution import Convolution
from planner.operations.joining import Concat
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.operations.mapped import Mapped
from planner.operations.normalisation import LocalResponseNorm
from planner.operations.pooling import Pooling


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartMemory:
    """Bytes of every part of a layer for the samples that it takes at once; arrays of shape (parts,)."""

    output: Floats
    """Bytes of the output."""
    saved: Floats
    """Bytes saved for the backward pass beside inputs, output and copies of inputs."""
    saved_before_output: bool
    """True if the output is computed from a saved tensor, and therefore allocated after it."""
    saves_output: bool
    """True if the backward pass reads the output."""
    saves_inputs: Bools
    """True if the backward pass reads an input itself, not a copy of it; shape (inputs, parts)."""
    input_copies: Floats
    """Bytes of copies of inputs, padded or in another layout, which are saved instead of the inputs."""
    gradient_padding: Floats
    """Bytes of padding around the gradient of the first input, which is a view without it."""
    partial: Floats
    """Bytes of partial sums that the part completes together with others, and of their gradient; else 0."""
    transforms_gradient: bool
    """True if the gradient of the output is turned into another one before both gradients are computed."""
    transforming: Floats
    """Bytes that are allocated meanwhile, beside the one and the other."""
    passes_gradient: bool
    """True if gradients of the inputs are views of the gradient of the output."""
    channels_last: bool
    """True if the output has its channels last in memory."""
    gradient_channels_last: bool
    """True if the gradient of the first input has its channels last in memory."""
    scratch: dict[str, Floats]
    """Bytes that are allocated while the part computes, beside its result, by phase."""
    gradient_in_place: Bools
    """True if the gradients of its parameters are written into the buffer of their synchronisation."""


def part_memories(program: Program, memory_policy: MemoryPolicy) -> list[PartMemory]:
    """Return the memory of the parts of every layer."""
    parts = _PartMemories(program, memory_policy)
    return [parts.add(i) for i in range(len(program.graph.layers))]


class _PartMemories:
    """Memory of parts, layer after layer, with the memory layouts of the outputs seen so far.

    Args:
        program: The program.
        memory_policy: Policy with the back end.
    """

    def __init__(self, program: Program, memory_policy: MemoryPolicy) -> None:
        self.program, self.graph, self.backend = program, program.graph, memory_policy.backend
        self.reduced = set(program.layer[program.statistics & program.backward].tolist())
        """Layers that are normalised by the statistics of all their parts together."""
        self.channels_last: list[bool] = []
        """True where a layer's output has its channels last, by layer added so far."""
        self.readers: dict[Edge, list[Edge]] = defaultdict(list)
        """Edges of all consumers that read a tensor in one layout, by the edge whose transfers bring it."""
        for edge, first in program.transferred_by.items():
            self.readers[first].append(edge)
        self._known: dict[tuple[object, ...], PartMemory] = {}
        """Memory of layers whose computation is recorded, by all that it depends on: blocks of a network have equal."""

    @cached_property
    def _micro_batch_graph(self) -> ComputationGraph:
        return self.graph.with_batch(self.graph.batch // self.program.micro_batching.parts)

    @cached_property
    def _in_all_replicas(self) -> dict[int, ComputationGraph]:
        """Network with the samples that all replicas take at once, by those that one takes."""
        graphs, replicas = (
            {graph.batch: graph for graph in (self.graph, self._micro_batch_graph)},
            self.program.classes,
        )
        if replicas is None:
            return graphs
        return {batch: graph.with_batch(replicas.in_all(batch)) for batch, graph in graphs.items()}

    def _layer(self, i: int) -> Layer:
        """Return a layer with the batch that it takes at once."""
        graph = self._micro_batch_graph if self.program.micro_batching.of(i) > 1 else self.graph
        return graph.layers[i]

    def add(self, i: int) -> PartMemory:
        """Return the memory of the parts of layer ``i``; layers are added in order."""
        layer, space, size = self._layer(i), self.program.spaces_at(i)[i], float(self.graph.element_bytes)
        operation, regions = layer.operation, held_regions(space)
        if isinstance(operation, Mapped) and operation.computes:
            return self._recorded(i, layer, space)
        part = Part(layer.input_shapes, layer.output, part_sizes(space))
        saved, output = operation.saved_tensors(part), np.float64(size) * regions.volume
        zeros = padding = np.zeros(len(regions.low))
        copied, copies, scratch = np.zeros(len(zeros), dtype=bool), zeros, dict.fromkeys(SCRATCH_PHASES, zeros)
        in_place = np.full(len(zeros), isinstance(operation, Linear))
        last = self._reads_channels_last(i, layer, space) if layer.inputs else False
        gradient_last, turned = last, zeros
        partial = zeros if product_space(space) is space else part.outputs * size
        if isinstance(operation, Convolution):
            parts, copied = self._convolution(i, layer, space, part, last)
            windows = parts.windows.prod(axis=1) * size
            copies, padding = np.where(copied, windows, 0.0), windows - _reads(layer, space).volume * size
            gradient_last = parts.channels_last
            last = gradient_last and product_space(space) is space  # whole sums arrive with their channels first
            turned = partial if gradient_last else zeros  # as does the gradient of partial sums
            scratch, in_place = self.backend.convolution_scratch(parts)
        elif isinstance(operation, Pooling) and self._gradient_comes_last(i, last) != last:
            scratch = {**scratch, "activation_gradient": output}  # it is copied into the layout of the input
        elif isinstance(operation, Loss) and operation.function == "mean_squared_error":
            scratch = {**scratch, "forward": output}  # the squares
        elif isinstance(operation, Loss) and operation.reads_rows:
            scratch, gradient_last = {**scratch, "forward": zeros if last else output}, True
            if size < ELEMENT_BYTES:
                output, scratch = _float32_loss(operation, part, host=self.backend.has_message_buffers)
        elif isinstance(operation, LocalResponseNorm):
            scratch = {**scratch, **_normalisation_scratch(layer, space, size)}
        elif isinstance(operation, Concat):  # channels first where some input has them first
            last = all(self._reads_channels_last(i, layer, space, slot) for slot in range(len(layer.inputs)))
        elif isinstance(operation, Linear):
            # channels and positions are read as one row, channels first
            copied |= last and math.prod(layer.input_shapes[0].positions) > 1
            copies, last = np.where(copied, _reads(layer, space).volume * size, 0.0), False
        self.channels_last.append(last)
        return PartMemory(
            output=output,
            saved=saved.elements * size + saved.index_bytes + zeros,
            saved_before_output=saved.before_output,
            saves_output=saved.output,
            saves_inputs=np.tile(~copied & saved.inputs, (len(layer.inputs), 1)),
            input_copies=copies,
            gradient_padding=padding,
            partial=partial,
            transforms_gradient=saved.transforms,
            transforming=np.maximum(self._normalising(i, layer, output), turned),
            passes_gradient=saved.passes_on,
            channels_last=last,
            scratch=scratch,
            gradient_in_place=in_place,
            gradient_channels_last=gradient_last and not isinstance(operation, Linear),
        )

    def _recorded(self, i: int, layer: Layer, space: ConfigSpace) -> PartMemory:
        """Return the memory of the parts of a layer whose computation is recorded."""
        last = tuple(self._reads_channels_last(i, layer, space, slot) for slot in range(len(layer.inputs)))
        data = tuple(map(is_data, layer.inputs))
        key = (layer.operation, layer.input_shapes, layer.frozen, data, space, last)
        if key not in self._known:
            self._known[key] = self._recorded_anew(i, layer, space, last)
        self.channels_last.append(self._known[key].channels_last)
        return self._known[key]

    def _recorded_anew(self, i: int, layer: Layer, space: ConfigSpace, last: Sequence[bool]) -> PartMemory:
        """Return what ``_recorded`` does; ``last``: whether each input has its channels last."""
        size = float(self.graph.element_bytes)
        part = Part(layer.input_shapes, layer.output, part_sizes(space))
        slots = range(len(layer.inputs))
        takes = self.graph.batch // self.program.micro_batching.of(i)
        whole = self._in_all_replicas[takes].layers[i]  # orders of dimensions follow from the whole tensor
        reads = [_reads(layer, space, slot).volume.astype(float) for slot in slots]
        # PyTorch's own RMS norm, which processors take, converts what has sixteen bits
        widened = max(ELEMENT_BYTES / size, 1.0) if self.backend.has_message_buffers else 1.0
        memory = recorded_memory(whole, part, reads, last, widened=widened)
        saved = memory.saved * size + memory.index_bytes
        kept = saved + memory.copies * size
        scratch = {
            "forward": np.maximum(memory.forward * size + memory.index_bytes - kept, 0.0),
            "activation_gradient": memory.activation_gradient * size,
            "weight_gradient": memory.weight_gradient * size,
        }
        if layer.operation.kind == "transposed_convolution":
            for phase, library in self._transposed(layer, part, reads[0] * size, last[0]).items():
                scratch[phase] = scratch[phase] + library
        return PartMemory(
            output=part.outputs * size,
            saved=saved,
            saved_before_output=True,
            saves_output=memory.saves_output,
            saves_inputs=np.tile(np.array(memory.saves_inputs, dtype=bool)[:, None], len(saved)),
            input_copies=memory.copies * size,
            gradient_padding=np.zeros(len(saved)),
            partial=np.zeros(len(saved)),
            transforms_gradient=False,
            transforming=np.zeros(len(saved)),
            passes_gradient=memory.passes_gradient,
            channels_last=memory.channels_last,
            scratch=scratch,
            gradient_in_place=np.zeros(len(saved), dtype=bool),
            gradient_channels_last=bool(last and last[0]),
        )

    def _normalising(self, i: int, layer: Layer, outputs: Floats) -> Floats:
        """Return the bytes that the gradient of a normalisation by its own statistics takes while it is computed."""
        copies = self.backend.normalisation_copies if layer.operation.statistics and i not in self.reduced else 0
        return copies * outputs

    def _transposed(self, layer: Layer, part: Part, inputs: Floats, last: bool) -> dict[str, Floats]:
        """Return the scratch memory of the parts of a transposed convolution, by phase.

        Args:
            layer: The layer.
            part: Its parts.
            inputs: Bytes of the input that each part reads.
            last: Whether the input has its channels last.
        """
        size, shape = float(self.graph.element_bytes), next(each.shape for each in layer.parameters)
        channels = part.channels * math.prod(shape[2:]) * size
        columns = channels * inputs / (size * shape[0])
        return self.backend.transposed_scratch(
            TransposedParts(
                kernel=shape[2:],
                samples=part.samples,
                inputs=inputs,
                outputs=part.outputs * size,
                weights=channels * shape[0],
                columns=columns,
                channels_last=last,
                element_bytes=self.graph.element_bytes,
            )
        )

    def _convolution(
        self, i: int, layer: Layer, space: ConfigSpace, part: Part, last: bool
    ) -> tuple[ConvolutionParts, Bools]:
        """Return the parts of a convolution as the library computes them, and which of them copy their input.

        Args:
            i: The layer's index.
            layer: The layer, a convolution.
            space: Its configuration.
            part: Its parts.
            last: Whether the input comes with its channels last.
        """
        assert isinstance(layer.operation, Convolution)
        outputs = held_regions(space)
        given, windows, pad = _windows(layer, space)
        wanted = self._wants_channels_last(layer, given)
        copied = (windows != given).any(axis=1) | (last != wanted) | self._reads_slice(i, layer, space)
        parts = ConvolutionParts(
            operation=layer.operation,
            part=part,
            windows=windows,
            pad=pad,
            outputs=(outputs.high - outputs.low)[:, 2:],
            channels_last=wanted,
            element_bytes=self.graph.element_bytes,
        )
        return parts, copied

    def _wants_channels_last(self, layer: Layer, given: Ints) -> bool:
        """Return whether a convolution computes on its region, of sizes (parts, D), with the channels last."""
        channels = layer.input_shapes[0].size("channel")
        return self.backend.channels_last(given, channels=channels, element_bytes=self.graph.element_bytes)

    def _reads_channels_last(self, i: int, layer: Layer, space: ConfigSpace, slot: int = 0) -> bool:
        """Return whether a layer gets an input with the channels last."""
        source = layer.inputs[slot]
        if is_data(source):
            return False
        u = self.graph.index[source]
        producer = self.program.spaces_at(i)[u]
        readers = self.readers[self.program.transferred_by[Edge(u, i, slot)]]
        pools = all(isinstance(self.graph.layers[edge.consumer].operation, Pooling) for edge in readers)
        if _is_local(producer, space, _reads(layer, space, slot)) or (pools and _meet(producer, space)):
            return self.channels_last[u]
        return any(self._wants_last(edge) for edge in readers)  # assembled as one of its readers wants it

    def _wants_last(self, edge: Edge) -> bool:
        """Return whether a consumer reads a tensor with the channels last."""
        layer = self._layer(edge.consumer)
        if isinstance(layer.operation, Convolution):
            regions = _reads(layer, self.program.spaces_at(edge.consumer)[edge.consumer], edge.slot)
            return self._wants_channels_last(layer, regions.high - regions.low)
        return layer.operation.reads_rows

    def _reads_slice(self, i: int, layer: Layer, space: ConfigSpace) -> bool:
        """Return whether parts read a slice of what their own device computed, not all of it."""
        if is_data(layer.inputs[0]):
            return False
        producer = self.program.spaces_at(i)[self.graph.index[layer.inputs[0]]]
        regions = _reads(layer, space)
        return _is_local(producer, space, regions) and bool(regions.volume.max() < held_regions(producer).volume.max())

    def _gradient_comes_last(self, i: int, last: bool) -> bool:
        """Return whether the gradient of an output comes with its channels last, from the first consumer.

        Args:
            i: The layer.
            last: Whether its output has its channels last.
        """
        consumers = self.graph.consumers[i]
        if not consumers:
            return last
        operation = self.graph.layers[consumers[0].consumer].operation
        if not isinstance(operation, Convolution):
            return last and not isinstance(operation, Linear)
        return self._wants_last(consumers[0])


def _reads(layer: Layer, space: ConfigSpace, slot: int = 0) -> Regions:
    """Return the regions of an input that the parts of a layer read."""
    return needed_regions(space, layer.operation.interval_maps(slot, layer.input_shapes), layer.input_shapes[slot])


def _float32_loss(operation: Loss, part: Part, *, host: bool) -> tuple[Floats, dict[str, Floats]]:
    """Return the bytes of the probabilities of sixteen-bit scores, and of what is allocated beside them by phase.

    They are float32.  One kernel, or the loss of a divided vocabulary, makes them in place, and the gradient from them;
    by PyTorch's own calls the converted scores are held meanwhile, and the gradients of the logarithms and of the
    converted scores.  On processors the converted scores are held too, and the gradient before it is converted back.
    """
    whole, apart = ELEMENT_BYTES * part.outputs, operation.by_own_calls(part)
    beside = {"forward": 1, "activation_gradient": 1 if host else 2, "weight_gradient": 0}
    return whole, {phase: count * (apart | host) * whole for phase, count in beside.items()}


def _normalisation_scratch(layer: Layer, space: ConfigSpace, element_bytes: float) -> dict[str, Floats]:
    """Return the scratch memory of local response normalisation, by phase.

    Forward, squares are padded with channels of zeros where a part has neighbours, and averaged to the divisor; the
    output is made beside the divisor and a power of it.  Backward, what is averaged is padded alike.
    """
    assert isinstance(layer.operation, LocalResponseNorm)
    held, given, half = held_regions(space), _reads(layer, space), layer.operation.size // 2
    output, channels = held.volume * element_bytes, held.high[:, 1] - held.low[:, 1]
    row = output / channels
    divided = given.volume > held.volume
    padded = np.where(divided, (channels + 2 * half) * row, 0.0)
    through = np.where(divided, ((given.high - given.low)[:, 1] + 2 * half) * row, 0.0)
    squares = given.volume * element_bytes
    return {
        "forward": np.maximum(2 * output, np.maximum(squares + padded - output, padded)),
        "activation_gradient": np.maximum(output, through),
    }


def _is_local(producer: ConfigSpace, space: ConfigSpace, regions: Regions) -> bool:
    """Return whether every part of a consumer finds all that it reads in what its own device computed."""
    if (producer.sums > 1).any():  # others hold partial sums of it too
        return False
    own = held_regions(producer)
    part_of = {device: part for part, device in enumerate(producer.devices.tolist())}
    rows = [part_of.get(device, -1) for device in space.devices.tolist()]
    if min(rows) < 0:
        return False
    return bool((own.low[rows] <= regions.low).all() and (regions.high <= own.high[rows]).all())


def _meet(producer: ConfigSpace, consumer: ConfigSpace) -> bool:
    """Return whether a device has parts of both."""
    return bool(np.isin(producer.devices, consumer.devices).any())


def _windows(layer: Layer, space: ConfigSpace) -> tuple[Ints, Ints, Ints]:
    """Return the sizes of what the parts of a convolution read, convolve and have padded.

    A library pads both sides alike.  A part at the border of the tensor has padding on one side only, so the executor
    copies its region into a larger one, with the padding that the library cannot add by itself:

        kernel 3, padding 1, 8 rows in two parts     part 0 reads rows 0-4, convolves 0 | 0-4
                                                     part 1 reads rows 3-7, convolves 3-7 | 0

    Returns:
        Sizes of the regions read and of those convolved, shape (parts, D) each; and the padding that the library adds
        on both sides, shape (parts, D - 2).
    """
    interval_maps, outputs, read = (
        layer.operation.interval_maps(0, layer.input_shapes),
        held_regions(space),
        _reads(layer, space),
    )
    given = read.high - read.low
    windows, pad = given.copy(), np.zeros_like(given[:, 2:])
    for d in range(2, given.shape[1]):
        interval_map = interval_maps[d]
        start = outputs.low[:, d] * interval_map.stride - interval_map.pad
        stop = (
            (outputs.high[:, d] - 1) * interval_map.stride
            - interval_map.pad
            + interval_map.dilation * (interval_map.kernel - 1)
            + 1
        )
        left, right = read.low[:, d] - start, stop - read.high[:, d]
        symmetric = (left >= right) & (left - right < interval_map.stride)
        windows[:, d] += np.where(symmetric, 0, left + right)
        pad[:, d - 2] = np.where(symmetric, left, 0)
    return given, windows, pad
