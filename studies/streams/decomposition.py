"""Decomposition: the backward pass of a layer as sub-tasks, each with its own time and its own share of the device.

A lowered program has two backward tasks for each part of a layer.  Here they become up to four: the gradient of the
epilogue (activation, batch normalisation), from which the others start; and the gradients of the input, of the weights
and of the bias, which wait for it only.  Tasks that waited for the weight gradient wait for the bias gradient too.

Source: "TurboDL", Sec. 2.2, Eqs. 2 to 4.  There an activation or a normalisation is a layer of its own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from hwprofiles.compute.compute_profile import ComputeProfile
from hwprofiles.compute.kernel_occupancy import occupancy
from hwprofiles.compute.kernels import Kernels
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.layouts.regions import held_regions
from planner.lowering.program import KINDS, Program
from planner.operations.base import ELEMENT_BYTES

_EPILOGUE, _ACTIVATION, _WEIGHT, _BIAS = (
    KINDS.index(f"{name}_gradient") for name in ("epilogue", "activation", "weight", "bias")
)


class _NewTask(NamedTuple):
    """A sub-task that is added."""

    owner: int
    """Weight gradient that it was a part of."""
    kind: int
    neighbour: int
    """Task whose group it stands before or after."""


def with_sub_tasks(program: Program, kinds_of: Callable[[int], Collection[int]]) -> Program:
    """Return the program with tasks for the gradients of epilogues and biases.

    Of one part of a layer, the epilogue's gradient comes before the others and the bias's gradient after them:

        before:  activation gradient, weight gradient
        after:   epilogue gradient, activation gradient, weight gradient, bias gradient

    Returns:
        The same work; a new task has the time of the weight gradient that it was part of, for the caller to set.

    Source:
        "TurboDL", Sec. 2.2, Eqs. 2 to 4.
    """
    first: dict[tuple[int, int, int], int] = {}
    new: list[_NewTask] = []
    for task in np.flatnonzero(np.isin(program.kind, [_ACTIVATION, _WEIGHT])).tolist():
        unit = int(program.layer[task]), int(program.micro_batch[task]), int(program.part[task])
        first.setdefault(unit, task)
        if program.kind[task] == _WEIGHT:
            kinds = kinds_of(unit[0])
            new += [_NewTask(task, _EPILOGUE, first[unit])] if _EPILOGUE in kinds else []
            new += [_NewTask(task, _BIAS, task)] if _BIAS in kinds else []
    # a stable sort puts the new tasks between old ones, whose positions are whole numbers
    positions = np.concatenate([np.arange(program.size, dtype=np.float64), _positions(program, new)])
    return _renumbered(program, new, np.argsort(positions, kind="stable"))


def _positions(program: Program, new: Sequence[_NewTask]) -> Floats:
    """Return the position of each new task in program order.

    An epilogue's gradient is half a position before the group of tasks that its neighbour belongs to, a bias's
    gradient half a position after it, so that all parts of a layer stay together.
    """
    start = np.searchsorted(program.group, program.group, side="left")
    stop = np.searchsorted(program.group, program.group, side="right")
    return np.array([(start if row.kind == _EPILOGUE else stop)[row.neighbour] - 0.5 for row in new])


def _renumbered(program: Program, new: Sequence[_NewTask], order: Ints) -> Program:
    """Return the program with the new tasks, and all tasks by their new numbers."""
    size, owner = program.size + len(new), np.array([row.owner for row in new], dtype=np.int64)
    number = np.empty(size, dtype=np.int64)  # the new number of each task, the inverse of the order
    number[order] = np.arange(size)
    kind = np.concatenate([program.kind, np.array([row.kind for row in new], dtype=np.int64)])[order]
    # A new task takes all other columns over from the weight gradient that it was part of.
    source = np.concatenate([np.arange(program.size), owner])[order]
    columns = program.columns_of(source) | {"kind": kind}
    late, early = _dependencies(program, new)
    pairs = np.unique(number[late] * size + number[early])
    late, early = np.divmod(pairs, size)
    return replace(
        program,
        collectives={int(number[task]): row for task, row in program.collectives.items()},
        after_start=np.concatenate([[0], np.cumsum(np.bincount(late, minlength=size))]),
        after=early,
        carried=number[program.carried],
        **columns,
    )


def _dependencies(program: Program, new: Sequence[_NewTask]) -> tuple[Ints, Ints]:
    """Return the tasks that wait and the tasks that they wait for, shape (N,) each; new tasks count on from the last.

    With e, a, w, b for the four gradients of a part and x for the tasks around it:

        before:  a -> x, w -> x            (each waits for x)
        after:   e -> x, a -> e, w -> e, b -> e; tasks that waited for w wait for b too
    """
    unit = np.column_stack([program.layer, program.micro_batch, program.part])
    epilogue_of, bias_of = np.full(program.size, -1), np.full(program.size, -1)
    gradients = np.flatnonzero(np.isin(program.kind, [_ACTIVATION, _WEIGHT]))
    rows = {tuple(unit[row.owner].tolist()): program.size + i for i, row in enumerate(new) if row.kind == _EPILOGUE}
    for task in gradients.tolist():
        epilogue_of[task] = rows.get(tuple(unit[task].tolist()), -1)
    for i, row in enumerate(new):
        if row.kind == _BIAS:
            bias_of[row.owner] = program.size + i
    late, early = program.waiting, program.after
    moved = epilogue_of[late] >= 0  # the epilogue waits in place of the gradients that start from it
    starts, waits = [np.where(moved, epilogue_of[late], late)], [early]
    has = np.flatnonzero(epilogue_of >= 0)
    biased = np.flatnonzero(bias_of >= 0)
    behind, alone = biased[epilogue_of[biased] >= 0], (bias_of[late] >= 0) & ~moved
    readers = bias_of[early] >= 0
    starts += [has, bias_of[behind], bias_of[late[alone]], starts[0][readers]]
    waits += [epilogue_of[has], epilogue_of[behind], early[alone], bias_of[early[readers]]]
    return np.concatenate(starts), np.concatenate(waits)


_Measured = Mapping[tuple[str, str], float]
"""Seconds of whole sub-tasks, launch included, by (layer, kind)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decomposed:
    """A program of sub-tasks; arrays have shape (T,) over its tasks and are 0 where nothing is computed."""

    program: Program
    launch_s: Floats
    """Launch, the part of ``program.work_s`` in which the device does nothing."""
    occupancy: Floats
    """Share of the device that a task keeps busy for the rest of its time."""

    @property
    def kernels(self) -> Bools:
        """Tasks that run kernels of the network: computation, without compression and decompression."""
        return np.asarray(self.program.is_compute & ~self.program.is_codec)


def decompose(program: Program, model: CostModel, *, occupancy_model: str = "geometry") -> Decomposed:
    """Decompose the backward pass of a lowered program.

    Raises:
        ConfigError: A profile has no ``launch`` section, or ``occupancy_model`` is unknown.

    Source: "TurboDL", Sec. 2.2, Eqs. 2 to 4.
    """
    sub_tasks = _SubTasks(program, model)
    extended = with_sub_tasks(program, sub_tasks.kinds)
    launch_s, share = np.zeros(extended.size), np.zeros(extended.size)
    work_s = extended.work_s.copy()
    for (layer, sub_batch, kind), tasks in _units(extended).items():
        kernels = sub_tasks.kernels(layer, kind)
        if kind in (_EPILOGUE, _WEIGHT, _BIAS):
            work_s[tasks] = sub_tasks.seconds(layer, sub_batch, kind)[extended.part[tasks]]
        profile_of = model.profile_of[extended.device[tasks]]
        for number in np.unique(profile_of).tolist():
            mine, profile = tasks[profile_of == number], model.profiles[number]
            rows = _some(kernels, extended.part[mine])
            launch_s[mine] = np.minimum(profile.launch_overhead_s, work_s[mine])
            share[mine] = _share(profile, model.graph, layer, kind, rows, occupancy_model)
    return Decomposed(program=replace(extended, work_s=work_s), launch_s=launch_s, occupancy=share)


def _share(
    profile: ComputeProfile, graph: ComputationGraph, layer: int, kind: int, rows: Kernels, occupancy_model: str
) -> Floats:
    """Return the occupancy of some parts of a layer: the measured one, or that of the model."""
    row = graph.layers[layer]
    phase = "weight_gradient" if kind == _EPILOGUE else KINDS[kind]
    known = profile.occupancies.get((graph.family, row.name, phase))
    if known is not None and kind != _EPILOGUE:
        return np.full(len(rows.flop), known)
    return occupancy(profile, rows, phase=phase, model=occupancy_model)


def with_measured(program: Program, measured: _Measured, share: Mapping[str, float] | None = None) -> Decomposed:
    """Return a lowered program of whole layers with sub-tasks that were measured rather than modelled.

    Bias gradients are measured together with weight gradients; every trained layer has an epilogue, which may take no
    time.

    Args:
        program: One iteration, lowered for one device.
        measured: Seconds by layer and kind; sub-tasks that are missing take 0.
        share: Share of the device by kind; kinds that are missing take all of it.
    """
    made = with_sub_tasks(program, lambda layer: (_EPILOGUE, _WEIGHT))
    names, kinds = [layer.name for layer in program.graph.layers], [KINDS[kind] for kind in made.kind.tolist()]
    work_s, taken = np.zeros(made.size), np.zeros(made.size)
    for task in np.flatnonzero(made.is_compute).tolist():
        work_s[task] = measured.get((names[made.layer[task]], kinds[task]), 0.0)
        taken[task] = (share or {}).get(kinds[task], 1.0)
    return Decomposed(program=replace(made, work_s=work_s), launch_s=np.zeros(made.size), occupancy=taken)


def _units(program: Program) -> dict[tuple[int, int, int], Ints]:
    """Return the kernels' tasks by layer, sub-batch and kind."""
    units: dict[tuple[int, int, int], list[int]] = {}
    for task in np.flatnonzero(program.is_compute & ~program.is_codec).tolist():
        key = int(program.layer[task]), int(program.micro_batch[task]), int(program.kind[task])
        units.setdefault(key, []).append(task)
    return {key: np.array(tasks) for key, tasks in units.items()}


def _some(kernels: Kernels, rows: Ints) -> Kernels:
    """Return the kernels of some parts of a layer."""
    names = [name for name in kernels.__slots__ if name != "window"]
    chosen: dict[str, Any] = {name: np.asarray(getattr(kernels, name))[rows] for name in names}
    return replace(kernels, **chosen)


def sub_kernels(layer: Layer, kind: str, part: dict[str, Floats]) -> Kernels:
    """Return the kernels of one sub-task for parts of a layer.

    The weight gradient of a lowered program includes the passes of the epilogue; here they are separate.  The gradient
    of a bias reads the output's gradient once and writes one element for each channel.

    Args:
        layer: The layer.
        kind: One of ``planner.lowering.program.KINDS`` that computes.
        part: Sizes of the parts by dimension of the output, shape (C,) each.
    """
    if kind not in ("epilogue_gradient", "weight_gradient", "bias_gradient"):
        return layer.kernels(kind, part)
    whole = layer.kernels("weight_gradient", part)
    zero, streamed = np.zeros_like(whole.flop), whole.streamed_bytes + np.zeros_like(whole.flop)
    if kind == "weight_gradient":
        return replace(whole, streamed_bytes=zero)
    outputs = np.prod([part[dim] for dim in layer.output.dims], axis=0)
    if kind == "bias_gradient":
        streamed, flop = (outputs + part["channel"]) * float(ELEMENT_BYTES), outputs
    else:
        flop = zero
    return Kernels(
        flop=flop,
        memory_bytes=streamed,
        rows=zero,
        columns=zero,
        depth=zero,
        samples=whole.samples,
        streamed_bytes=zero,
    )


class _SubTasks:
    """Kernels and times of the sub-tasks of every layer, by part."""

    def __init__(self, program: Program, model: CostModel) -> None:
        self._program, self._model = program, model
        self._micro_model = (
            model.for_batch(model.graph.batch // program.micro_batching.parts)
            if program.micro_batching.parts > 1
            else model
        )

    def kinds(self, layer: int) -> tuple[int, ...]:
        """Return the kinds of sub-tasks that a layer's weight gradient turns into."""
        row = self._model.graph.layers[layer]
        whole = {d: np.array([float(s)]) for d, s in zip(row.output.dims, row.output.sizes, strict=True)}
        streamed = float(np.max(row.kernels("weight_gradient", whole).streamed_bytes))
        bias = (_BIAS,) if getattr(row.operation, "bias", False) else ()
        return ((_EPILOGUE,) if streamed > 0 else ()) + (_WEIGHT, *bias)

    def kernels(self, layer: int, kind: int) -> Kernels:
        """Return the kernels of one kind of sub-task for all parts of a layer."""
        return sub_kernels(self._layer(layer), KINDS[kind], self._sizes(layer))

    def seconds(self, layer: int, sub_batch: int, kind: int) -> Floats:
        """Return the time of one kind of sub-task for each part of a layer.

        It is the roofline's, or its share of the measured time of the whole weight gradient; products of later
        sub-batches also add to the gradients before.
        """
        program, model, row = self._program, self._model, self._layer(layer)
        devices = program.spaces[layer].devices
        times = {each: np.empty(len(devices)) for each in self.kinds(layer)}
        profile_of, sizes = model.profile_of[devices], self._sizes(layer)
        for number in np.unique(profile_of).tolist():
            profile, mine = model.profiles[number], profile_of == number
            for each in times:
                phase = "bias_gradient" if each in (_BIAS, _EPILOGUE) else "weight_gradient"
                work = sub_kernels(row, KINDS[each], sizes)
                times[each][mine] = profile.time_s(work, phase=phase)[mine]
        whole = self._whole(layer, sub_batch)
        if not self._measured(layer):
            return times[kind] + (whole - self._whole(layer, 0) if kind == _WEIGHT else 0.0)
        return np.asarray(times[kind] * whole / np.sum(list(times.values()), axis=0))

    def _whole(self, layer: int, sub_batch: int) -> Floats:
        """Return the time of the whole weight gradient of each part of a layer, as it was lowered."""
        program, whole = self._program, np.empty(len(self._program.spaces[layer].devices))
        lowered = (program.kind == _WEIGHT) & (program.layer == layer) & (program.micro_batch == sub_batch)
        whole[program.part[lowered]] = program.work_s[lowered]
        return whole

    def _measured(self, layer: int) -> bool:
        """Return whether some profile has measured the layer's weight gradient."""
        graph, row = self._model.graph, self._layer(layer)
        known = (
            p.measured_parts(graph.name, row.name, "weight_gradient", row.output.sizes) for p in self._model.profiles
        )
        return any(parts is not None for parts in known)

    def _layer(self, layer: int) -> Layer:
        """Return a layer with the batch that it computes at once."""
        model = self._micro_model if self._program.micro_batching.of(layer) > 1 else self._model
        return model.graph.layers[layer]

    def _sizes(self, layer: int) -> dict[str, Floats]:
        """Return the sizes of a layer's parts by dimension of its output, shape (parts,) each."""
        spaces = self._program.spaces_at(layer)
        boxes = held_regions(spaces[layer])
        sizes = (boxes.high - boxes.low).astype(np.float64)
        return {dim: sizes[:, d] for d, dim in enumerate(self._layer(layer).output.dims)}
