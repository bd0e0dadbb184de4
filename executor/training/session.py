"""A rank set up for a program: its parts, parameters, optimizers, messages and measurements."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from executor.communication.bucketed_sync import BucketedSync
from executor.communication.gradient_sync import GradientSync
from executor.communication.ordered_sync import OrderedSync
from executor.communication.redistributor import Redistributor
from executor.communication.sharded_sync import ShardedSync
from executor.communication.transport import transport_of
from executor.data.dataset import Dataset
from executor.data.load import load_data
from executor.layers.base import PartContext, PartLayer
from executor.layers.factory import part_layer
from executor.layers.losses import loss_scale
from executor.program.buckets import reductions_of
from executor.program.messages import region_messages_of
from executor.program.rank_parts import LayerUnit
from executor.program.rank_program import RankProgram
from executor.program.rank_storage import boxes_of
from executor.program.recorder import Recorder
from executor.runtime.boxes import Box
from executor.runtime.devices import ComputeDevice, torch_type
from executor.runtime.module_state import buffer_keys, norm_prefix, read_module_state, with_tied
from executor.runtime.optimizers import Optimizer, make_optimizer
from executor.runtime.parameter_init import initial_parameters
from executor.runtime.run_options import RunOptions
from executor.supervision.status_board import RankStatus
from executor.training.rank_resources import RankLayers, RankResources
from executor.training.stand_in import StandInPart
from executor.training.unit_parameters import UnitParameters
from executor.training.worker import Worker
from planner.graph.data_sources import DATA
from planner.lowering.program import Program
from planner.operations.loss import Loss


class HeldSlice(NamedTuple):
    """A box of a parameter that a rank keeps, or of a state of its optimizer."""

    label: str
    """Name of the parameter, with that of the state."""
    name: str
    box: Box
    tensor: Tensor


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Session:
    """All objects that a rank holds while it trains."""

    view: RankProgram
    worker: Worker
    parts: dict[int, PartLayer]
    """Part of the first micro-batch, by layer, for the layers of which the rank holds a part; its running statistics
    are those of all micro-batches."""
    boxes: dict[int, dict[str, Box]]
    """Slice that the rank holds, by layer and parameter; without those that a layer borrows of another."""
    parameters: dict[int, dict[str, Tensor]]
    """Slices that the rank computes with, by layer and name; those that replicas divide have memory while they are
    used alone."""
    units: UnitParameters
    """What the rank keeps of parameters that replicas divide, or whose optimizer state they divide."""
    optimizers: dict[int, Optimizer]
    gradient_sync: GradientSync

    def slices(self, layer: int) -> Iterator[HeldSlice]:
        """Yield what the rank keeps of a layer's parameters between steps."""
        pieces = self.units.pieces(layer) if self.view.storage.divides_parameters else {}
        for name, box in self.boxes[layer].items():
            yield from self._boxes(layer, name, box, pieces.get(name, self.parameters[layer][name]), name)

    def state_slices(self, layer: int) -> Iterator[HeldSlice]:
        """Yield what the rank keeps of the state of a layer's optimizer, as ``weight.momentum``."""
        trained = [each.name for each in self.view.program.graph.layers[layer].parameters if each.elements]
        for state, row in self.optimizers[layer].state.items() if trained else ():
            for name, values in zip(trained, row, strict=True):
                yield from self._boxes(layer, name, self.boxes[layer][name], values, f"{name}.{state}")

    def _boxes(self, layer: int, name: str, box: Box, values: Tensor, label: str) -> Iterator[HeldSlice]:
        """Yield a tensor with its box, or a row of some of its elements as several boxes."""
        if values.shape == box.shape:
            yield HeldSlice(label, name, box, values)
            return
        low, high = self.view.storage.units[self.view.storage.unit_of[layer]].piece((layer, name))
        for inner, (first, end) in boxes_of(box.shape, (low, high)):
            placed = (tuple(map(sum, zip(box.low, side, strict=True))) for side in (inner.low, inner.high))
            yield HeldSlice(label, name, Box(*placed), values[first - low : end - low].view(inner.shape))


_MOST_DIMS = 5
"""Dimensions of targets, at most: samples, channels and three positions."""


class _NoData:
    """A data set without elements, for runs in which nothing is computed."""

    samples: int | None = None

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def inputs(self, step: int, box: Box, name: str = DATA) -> Tensor:
        return torch.empty(0, dtype=self._dtype)

    def targets(self, step: int, low: int, high: int) -> Tensor:
        return torch.empty((0,) * _MOST_DIMS, dtype=torch.int64)


def open_session(
    program: Program,
    rank: int,
    options: RunOptions,
    *,
    reduced: bool,
    device: ComputeDevice,
    status: RankStatus,
    steps: int,
) -> Session:
    """Set a rank up; all ranks must call it together, with the default process group open.

    Raises:
        ConfigError: The data do not fit the model.
    """
    graph, dtype = program.graph, torch_type(program.types.activation)
    view = RankProgram(program, rank, region_messages_of(program))
    recorder = Recorder(program.size, device)
    boxes = {i: _trained_boxes(view, i) for i, part in enumerate(view.parts.index) if part >= 0}
    state = with_tied(read_module_state(Path(options.init)), graph) if options.init else {}
    units = UnitParameters(view, device, recorder, status, options.timeout_s)
    parameters, optimizers = _parameters(program, boxes, options, state, device, units)
    data: Dataset
    if options.stand_in:
        data = _NoData(dtype)
    else:
        data = load_data(options.data, graph, seed=options.seed, dtype=dtype, device=device.torch_device)
    transport = transport_of(
        view, device, iterations=steps, dtype=dtype, recorder=recorder, timeout_s=options.timeout_s
    )
    redistributor = Redistributor(view, device, recorder, status, options.timeout_s)
    gradient_sync = _gradient_sync(view, options, device, recorder)
    parts = _parts(view, boxes, options, dtype, device, reduced=reduced)
    _set_buffers(view, parts, state, device)
    worker = Worker(
        RankResources(
            view=view,
            device=device,
            transport=transport,
            redistributor=redistributor,
            units=units,
            gradient_sync=gradient_sync,
            recorder=recorder,
            status=status,
        ),
        RankLayers(parts=parts, parameters=parameters, optimizers=optimizers, data=data),
        options,
    )
    return Session(
        view=view,
        worker=worker,
        parts={i: parts[i, 0] for i in boxes},
        boxes=boxes,
        parameters=parameters,
        units=units,
        optimizers=optimizers,
        gradient_sync=gradient_sync,
    )


def _gradient_sync(view: RankProgram, options: RunOptions, device: ComputeDevice, recorder: Recorder) -> GradientSync:
    """Return the gradient synchronisation of a rank: of shards, in the program's order if it has one, or by buckets."""
    kind: type[GradientSync] = OrderedSync if view.program.sync_order else BucketedSync
    if view.program.conditions.storage.divides:
        kind = ShardedSync
    return kind(view, device, recorder, options)


def _trained_boxes(view: RankProgram, layer: int) -> dict[str, Box]:
    """Return the slices of a layer's own parameters, without those that it borrows."""
    boxes = view.parts.parameters(layer)
    return {each.name: boxes[each.name] for each in view.program.graph.layers[layer].parameters if not each.shared}


def _parameters(
    program: Program,
    boxes: dict[int, dict[str, Box]],
    options: RunOptions,
    state: Mapping[str, Tensor],
    device: ComputeDevice,
    units: UnitParameters,
) -> tuple[dict[int, dict[str, Tensor]], dict[int, Optimizer]]:
    """Return initial parameters, by layer and name, and the optimizer of each layer that has any.

    An optimizer updates what the rank keeps: of a parameter that replicas divide, or whose state they divide, a piece.
    """
    graph, types = program.graph, program.types
    updated, dtype = torch_type(types.updated), torch.promote_types(torch_type(types.updated), torch.float32)
    parameters, optimizers = dict[int, dict[str, Tensor]](), dict[int, Optimizer]()
    for i, slices in boxes.items():
        if options.stand_in:
            values = {name: torch.zeros(box.shape, dtype=dtype) for name, box in slices.items()}
        elif state:
            layer = graph.layers[i]
            keys, shapes = dict(layer.keys), {each.name: each.shape for each in layer.parameters}
            values = {
                name: state[keys[name]]
                .view(shapes[name])[tuple(map(slice, box.low, box.high))]
                .clone(memory_format=torch.contiguous_format)
                .to(device.torch_device, dtype)
                for name, box in slices.items()
            }
        else:
            values = initial_parameters(graph, i, slices, seed=options.seed, dtype=dtype, device=device.torch_device)
        parameters[i] = units.take(i, values)
        names, pieces = [each.name for each in graph.layers[i].parameters if each.elements], units.pieces(i)
        if names:
            trained = [pieces.get(name, parameters[i][name]) for name in names]
            _, copied = types.at_rest(divided=bool(pieces) and program.conditions.storage.zero > 2)
            masters = [units.piece_of(i, name, values[name]).to(updated, copy=True) for name in names if copied]
            kept, scale = torch_type(types.state), loss_scale(torch_type(types.activation))
            optimizers[i] = make_optimizer(options.optimizer, trained, masters=masters, state_type=kept, scale=scale)
    return parameters, optimizers


def _set_buffers(
    view: RankProgram, parts: Mapping[LayerUnit, PartLayer], state: Mapping[str, Tensor], device: ComputeDevice
) -> None:
    """Give the parts the buffers of the module that training starts from."""
    graph, dtype = view.program.graph, torch_type(view.program.types.activation)
    for (i, micro_batch), part in parts.items():
        layer, held = graph.layers[i], view.parts.held(i)
        held_buffers = {key: state[key] for key in buffer_keys(layer) if key in state}
        part.constants = {  # fractions in the network's type
            key: each.to(device.torch_device, dtype if each.is_floating_point() else each.dtype)
            for key, each in held_buffers.items()
        }
        prefix = norm_prefix(layer)
        for name, buffer in part.buffers.items() if micro_batch == 0 and prefix else ():
            if prefix + name in state:
                buffer.copy_(state[prefix + name][held.low[1] : held.high[1]])


def _parts(
    view: RankProgram,
    boxes: dict[int, dict[str, Box]],
    options: RunOptions,
    dtype: torch.dtype,
    device: ComputeDevice,
    *,
    reduced: bool,
) -> dict[LayerUnit, PartLayer]:
    """Return the parts that the rank computes, one for each micro-batch, or placeholders for them."""
    parts = dict[LayerUnit, PartLayer]()
    summed = {row.layer for row in reductions_of(view, statistics=True)}
    for i in boxes:
        graph = view.parts.graph_of(i)
        for unit in view.parts.units(i):
            samples = view.parts.samples_of(unit)
            if options.stand_in:
                layer, box = graph.layers[i], view.parts.held(i)
                inputs = tuple(view.parts.needed(i, slot) for slot in range(len(layer.inputs)))
                parts[unit] = StandInPart(
                    PartContext(layer, i, box, view.parts.product(i), inputs, view.parts.parameters(i), samples),
                    sums_statistics=i in summed,
                    is_loss=isinstance(layer.operation, Loss),
                    dtype=dtype,
                    random=options.real_compression,
                )
                continue
            parts[unit] = part_layer(
                graph,
                i,
                view.parts.space_of(i),
                view.parts.index[i],
                reduced=reduced,
                samples=samples,
                dtype=dtype,
                device=device.torch_device,
            )
            parts[unit].buffers.update(parts[i, 0].buffers)  # micro-batches share their running statistics
    return parts
