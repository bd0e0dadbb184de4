"""Programs as Chakra's execution traces: what each rank computes, sends, receives and takes part in.

A message is a node of its sender and one of its receiver, with one tag.  All rounds of an all-reduce are one node of
each rank that takes part, as other programs choose their own algorithm for it; of a program whose collectives are
expanded every message is a pair of nodes, so that any algorithm comes back as it was.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from groundwork.errors import ConfigError
from groundwork.units import MICRO
from planner.lowering.program import KINDS, Program
from simulator.formats.chakra import CHAKRA_COLLECTIVES, ChakraNode

_FORWARD, _UPDATE = KINDS.index("forward"), KINDS.index("update")


@dataclass(frozen=True, slots=True)
class _Tasks:
    """Tasks of a program as nodes: rounds of one all-reduce are one."""

    node: Mapping[int, int]
    """First round of the all-reduce that a later round belongs to."""
    later: Mapping[int, list[int]]
    """Later rounds of the all-reduce that each first round begins."""
    ranks: list[tuple[int, ...]]
    """Devices that have a node for each task."""


def chakra_traces(program: Program) -> list[list[ChakraNode]]:
    """Return the trace of each device for one iteration.

    Raises:
        ConfigError: Gradients go through the memory of a host, which the schema's nodes cannot say.
    """
    if program.host_copies:
        raise ConfigError("Chakra traces need a plan without parameter servers: framework must not be ps")
    tasks = _tasks(program)
    flop, elements = _sizes(program)
    traces: list[list[ChakraNode]] = [[] for _ in program.cluster.devices]
    for task in range(program.size):
        if task in tasks.node:
            continue  # a task of a later round: the first round's node stands for it
        for rank in tasks.ranks[task]:
            name = program.name(task)
            after = tuple(dict.fromkeys(_before(program, tasks, task, rank)))
            kind, attributes = _described(program, task, rank, flop, elements)
            seconds = float(program.work_s[task])
            traces[rank].append(
                ChakraNode(
                    id=task,
                    name=name,
                    type=kind,
                    after=after,
                    duration_us=round(seconds / MICRO),
                    attributes=attributes,
                )
            )
    return traces


def _tasks(program: Program) -> _Tasks:
    """Return which rounds are one collective, and the ranks of each task."""
    devices = len(program.cluster.devices)
    node: dict[int, int] = {}
    first: dict[tuple[object, ...], int] = {}
    ranks: list[tuple[int, ...]] = []
    for task in range(program.size):
        if task in program.collectives:
            members, kind = program.collectives[task].devices, program.collectives[task].kind
            of = (program.layer, program.micro_batch, program.consumer, program.slot, program.backward)
            again = bool(program.statistics[task]), bool(program.recomputed[task])
            key = (*(int(column[task]) for column in of), *again, kind, members)
            if first.setdefault(key, task) != task:
                node[task] = first[key]
            ranks.append(tuple(sorted(members)))
        elif program.peer[task] >= 0:
            ranks.append((int(program.device[task]), int(program.peer[task])))
        else:
            own = int(program.device[task])
            ranks.append((own,) if own >= 0 else tuple(range(devices)))
    later: dict[int, list[int]] = {}
    for each, begins in node.items():
        later.setdefault(begins, []).append(each)
    return _Tasks(node, later, ranks)


def _before(program: Program, tasks: _Tasks, task: int, rank: int) -> Iterator[int]:
    """Yield the nodes of a rank that a task's node there waits for.

    A receiver waits for nothing: the message comes when its sender has it.
    """
    if program.peer[task] == rank and program.device[task] != rank:
        return
    for each in (task, *tasks.later.get(task, ())):
        for before in program.after[program.after_start[each] : program.after_start[each + 1]].tolist():
            found = tasks.node.get(before, before)
            if found != task and rank in tasks.ranks[found]:
                yield found


def _sizes(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """Return the floating-point operations and the bytes of output of each computing task, shape (T,) each.

    The parts of a layer have equal shares, but those that compute the same; each gradient takes as many operations as
    the forward pass.
    """
    layers, repeats = program.graph.layers, np.array([space.repeats[0] for space in program.spaces])
    shares = np.bincount(program.group, minlength=int(program.group.max(initial=0)) + 1)[program.group]
    flop = np.array([float(layer.forward_flop()) for layer in layers])
    size = np.array([float(np.prod(layer.output.sizes)) for layer in layers]) * program.graph.element_bytes
    computes, shares = program.is_compute, shares / repeats[program.layer]
    return (
        np.where(computes & (program.kind != _UPDATE), flop[program.layer] / shares, 0.0),
        np.where(computes, size[program.layer] / shares, 0.0),
    )


def _described(
    program: Program, task: int, rank: int, flop: np.ndarray, elements: np.ndarray
) -> tuple[str, dict[str, int | float | bool | str]]:
    """Return the type of a task's node on a rank, and its attributes."""
    common: dict[str, int | float | bool | str] = {"is_cpu_op": False}
    # Traces know bytes alone: a message that does not fill its links counts as what they would carry in its time.
    on_links = float(program.size_bytes[task] * program.link_use[task])
    size = round(on_links)
    if task in program.collectives:
        collective = program.collectives[task]
        members = ",".join(map(str, collective.devices))
        return "collective", common | {
            "comm_type": CHAKRA_COLLECTIVES.index(collective.kind),
            "comm_size": round(collective.buffer_bytes),
            "pg_name": members,
            "comm_tag": task,
        }
    if program.peer[task] >= 0:
        source, target = int(program.device[task]), int(program.peer[task])
        kind = "send" if rank == source else "receive"
        # what a library's protocol adds to a message may be a fraction of a byte
        exact = {} if size == on_links else {"bytes": on_links}
        return kind, common | {"comm_src": source, "comm_dst": target, "comm_size": size, "comm_tag": task} | exact
    if program.device[task] < 0:  # a task of no device: all ranks agree that a buffer is ready
        everyone = ",".join(map(str, range(len(program.cluster.devices))))
        return "collective", common | {
            "comm_type": CHAKRA_COLLECTIVES.index("barrier"),
            "comm_size": 0,
            "pg_name": everyone,
            "comm_tag": task,
            "seconds": float(program.work_s[task]),
        }
    return "compute", common | {
        "num_ops": round(float(flop[task])),
        "tensor_size": round(float(elements[task])),
        "seconds": float(program.work_s[task]),
        "kind": KINDS[int(program.kind[task])],
    }
