"""Launches: a host gives its device one kernel after another, and the device waits where it has none.

Every device has a launching thread of its own, whose launches take as long as its software needs (``planner.cost.
software``) and use no resource of the cluster.  A task begins once all its kernels are launched.  Hosts run ahead of
their devices, through all of an iteration; the next one they begin when their device has ended this one, for training
loops read the loss or the norm of the gradients.  Some software waits for its device at each pass of a micro-batch, for
what the pass sends to other stages, and for what it reads from them, before it launches the next one::

    host      f1 f2 f3 b3 b2 b1            |  f1 f2 ...
    device       f1-- f2-- f3-- b3-- b2-- b1--    f1--

    host      f1 f2 f3      |  b3 b2 b1         |  f1 f2 ...
    device       f1-- f2-- f3--   b3-- b2-- b1--      f1--

Source:
    Paszke et al., "PyTorch", NeurIPS 2019, Sec. 5.2: control on the host runs ahead of the device.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Bools, Floats, Ints
from planner.derivatives.eager_kernels import launched_kernels
from planner.layouts.regions import part_sizes
from planner.lowering.program import KINDS, Program
from planner.simulation.execution_models import ProgramGraph

_PHASES = ("forward", "activation_gradient", "weight_gradient")


def with_launches(program: Program, program_graph: ProgramGraph) -> ProgramGraph:
    """Return a task graph in which hosts launch all tasks of their devices; the same where launches take no time.

    Args:
        program: The program.
        program_graph: Its task graph, with an activity for every task.
    """
    software = program.conditions.software
    if not software.launch_s and not software.peer_s:
        return program_graph
    graph, task_of = program_graph.graph, program_graph.task_of
    iterations, size = len(task_of), graph.size // len(task_of)
    launched, device, launch_s = _launches(program)
    total = size + len(launched)
    # tasks of one iteration, then its launches, then those of the next
    moved = np.arange(graph.size) + np.arange(graph.size) // size * len(launched)
    launch = np.arange(iterations)[:, None] * total + size + np.arange(len(launched))

    def column(own: NDArray[Any], launches: NDArray[Any]) -> NDArray[Any]:
        """Return a column of all tasks from that of the graph's own, and that of the launches of one iteration."""
        rows = np.broadcast_to(launches, (iterations, len(launched)))
        return np.concatenate([own.reshape(iterations, size), rows], axis=1).ravel()

    none = np.zeros(len(launched), dtype=np.int64)
    late = np.concatenate([moved[graph.waiting], moved[task_of[:, launched]].ravel()])
    early = np.concatenate([moved[graph.after], launch.ravel()])
    first = np.unique(device, return_index=True)[1]
    ended = moved[task_of[:-1, _last_on(program, device[first])]]
    late, early = np.concatenate([late, launch[1:, first].ravel()]), np.concatenate([early, ended.ravel()])
    if software.waits > (0 if len(np.unique(_stages(program))) > 1 else 1):
        begun, awaited = _awaited(program, launched, device)
        late = np.concatenate([late, launch[:, begun].ravel()])
        early = np.concatenate([early, moved[task_of[:, awaited]].ravel()])
    order = np.lexsort((early, late))
    streams = graph.stream.max(initial=-1) + 1
    hosts = replace(
        graph,
        work=column(graph.work, launch_s),
        latency_s=column(graph.latency_s, 0.0 * none),
        start_s=column(graph.start_s, 0.0 * none),
        rate_limit=column(graph.rate_limit, none + np.inf),
        priority=column(graph.priority, none),
        stream=column(graph.stream, streams + device),
        use_start=np.concatenate([[0], np.cumsum(column(np.diff(graph.use_start), none))]),
        after_start=np.concatenate([[0], np.cumsum(np.bincount(late, minlength=total * iterations))]),
        after=early[order],
    )
    launches = np.full(hosts.size, -1, dtype=np.int64)
    launches[launch] = launched
    return replace(program_graph, graph=hosts, task_of=moved[task_of], launches=launches)


def _launches(program: Program) -> tuple[Ints, Ints, Floats]:
    """Return tasks in program order, the device that each is launched for, and the seconds, shape (launches,) each.

    A collective is a kernel on each of its devices; messages leave by themselves.
    """
    software = program.conditions.software
    kernels = np.ones(program.size, dtype=np.int64)
    fused, layers = software.fused, range(len(program.graph.layers))
    parts = [{dim: size[:1] for dim, size in part_sizes(program.spaces_at(i)[i]).items()} for i in layers]
    for phase in _PHASES:
        tasks = np.flatnonzero(program.kind == KINDS.index(phase))
        counts = [launched_kernels(program.graph, i, phase, fused=fused, part=part) for i, part in enumerate(parts)]
        kernels[tasks] = np.array(counts)[program.layer[tasks]]
    kernels[program.kind == KINDS.index("update")] = 0
    sums = software.sums
    if sums > 1 or (sums and not program.micro_batching.update_each):
        tasks = np.flatnonzero(program.kind == KINDS.index("weight_gradient"))
        tensors = np.array([sum(p.elements > 0 for p in layer.parameters) for layer in program.graph.layers])
        kernels[tasks] += tensors[program.layer[tasks]]
        if sums == 1:  # the first gradient is kept
            keys = program.layer[tasks] * len(program.cluster.devices) + program.device[tasks]
            first = tasks[np.unique(keys, return_index=True)[1]]
            kernels[first] -= tensors[program.layer[first]]
    launch_s = kernels * software.launch_s
    if _leaves_machines(program):
        for task, collective in program.collectives.items():
            begins = not collective.place or collective.place[0] == 0  # and is no later round of one
            if program.consumer[task] >= 0 and begins:
                launch_s[task] += len(collective.devices) * software.peer_s
    alone = np.flatnonzero(program.is_compute & (kernels > 0))
    rows = [(alone, program.device[alone])]
    for task, collective in program.collectives.items():
        devices = np.array(sorted(set(collective.devices)))
        rows.append((np.full(len(devices), task), devices))
    tasks, devices = (np.concatenate(column) for column in zip(*rows, strict=True))
    order = np.argsort(tasks, kind="stable")
    return tasks[order], devices[order], np.asarray(launch_s[tasks[order]], dtype=np.float64)


def _stages(program: Program) -> Ints:
    """Return the stage of each layer."""
    return np.array([program.micro_batching.stage_of(i) for i in range(len(program.graph.layers))])


def _crosses(program: Program) -> Bools:
    """Return whether each task brings what another stage reads, or its gradient; borrowed parameters do not count."""
    stages, inputs = _stages(program), np.array([len(layer.input_shapes) for layer in program.graph.layers])
    crosses = (stages[program.layer] != stages[program.consumer]) & (program.slot < inputs[program.consumer])
    return np.asarray(crosses & (program.peer >= 0) & (program.consumer >= 0))


def _leaves_machines(program: Program) -> bool:
    """Return whether stages exchange messages between machines."""
    node, sent = program.cluster.devices.node, _crosses(program)
    return bool((node[program.device[sent]] != node[program.peer[sent]]).any())


def _awaited(program: Program, launched: Ints, device: Ints) -> tuple[Ints, Ints]:
    """Return the first launches of each pass of a device, and tasks that they wait for, pair by pair.

    These are the last task of the pass before, the messages that it sent to other stages, and those of other stages
    that tasks of the pass wait for.
    """
    stages, crosses = _stages(program), _crosses(program)
    goes_back = program.backward | program.recomputed
    number = (stages[program.layer] * program.micro_batching.parts + program.micro_batch) * 2 + goes_back
    order = np.lexsort((launched, device))
    pass_of = program.device * (number.max() + 1) + number
    task, passes = launched[order], device[order] * (number.max() + 1) + number[launched[order]]
    begins = np.flatnonzero(np.diff(passes, prepend=passes[0] - 1))
    follows = np.append(device[order][begins[1:]] == device[order][begins[1:] - 1], False)
    later = begins[1:][follows[:-1]]
    # zero-bubble schedules come back to a pass: what is received is there since its first time, and sent by then
    known, first = np.unique(passes[begins], return_index=True)
    rows = np.flatnonzero(crosses[program.after] & program.is_compute[program.waiting])
    begun = begins[first[np.searchsorted(known, pass_of[program.waiting[rows]])]]
    sent = np.flatnonzero(crosses[program.waiting] & program.is_compute[program.after])
    sender = first[np.searchsorted(known, pass_of[program.after[sent]])]
    sent, sender = sent[follows[sender]], sender[follows[sender]]
    awaited = [task[later - 1], program.after[rows], program.waiting[sent]]
    return order[np.concatenate([later, begun, begins[sender + 1]])], np.concatenate(awaited)


def _last_on(program: Program, devices: Ints) -> Ints:
    """Return the last task that computes on each device."""
    compute = np.flatnonzero(program.is_compute & ~program.is_codec)
    last = np.zeros(len(program.cluster.devices), dtype=np.int64)
    np.maximum.at(last, program.device[compute], compute)
    return last[devices]
