"""Interference: what communication takes from the arithmetic of devices, and arithmetic from communication.

The kernels of a communication library occupy a multiprocessor for each channel as long as messages travel, and their
reads and writes take memory bandwidth.  Both are a share of the device.  Where arithmetic and messages together would
use more than all of it, both are slower; messages over links much slower than the fastest hardly notice.  Devices of
one board share its power: all together they compute more slowly than one alone.

Source:
    A channel is one block, and has a multiprocessor for itself: NVIDIA/nccl, issues 689 and 1656.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.rows_on_demand import JoinedNames
from hwprofiles.compute.profile_file import load_profile
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.conditions import Conditions
from planner.lowering.program import KINDS, Collective, Program
from planner.simulation.execution_models import ProgramGraph
from simulator.timelines.timeline import alone_s

_MOST = 0.9
"""Largest share of a device that messages can take."""
_COORDINATE = KINDS.index("coordinate")
_BY_LIBRARY = [KINDS.index("transfer"), KINDS.index("gather"), KINDS.index("collective")]
"""Kinds of messages that kernels of the library move; copy engines move those from and to hosts."""


def with_interference(program: Program, program_graph: ProgramGraph) -> ProgramGraph:
    """Return a task graph in which messages use the arithmetic of the devices that they leave and reach.

    Rates of messages are counted in the bandwidth of the fastest link, so that those of messages and of arithmetic,
    which is 1 at best, rise together.  On a device of which a message at its full rate takes s, both run at 1 / (1 + s)
    if the message is on the fastest links.  If it is on links so slow that it is at its limit before, it keeps its
    rate, and arithmetic has the rest, 1 - s.

    Args:
        program: The program.
        program_graph: Its task graph with contention.

    Raises:
        ConfigError: No device of the cluster declares communication channels.
    """
    Conditions(interference=True).check(program.cluster)
    graph, unit = program_graph.graph, float(program.cluster.bandwidth.max())
    links = len(program.cluster.links)
    moving = np.flatnonzero(~program.is_compute & (program.kind != _COORDINATE))
    moving = moving[graph.work[program_graph.task_of[0, moving]] > 0]
    ids = program_graph.task_of[:, moving]  # shape (iterations, messages)
    is_message = np.zeros(graph.size, dtype=np.bool_)
    is_message[ids] = True
    work = np.where(is_message, graph.work / unit, graph.work)
    capacity = graph.capacity.copy()
    capacity[:links] /= unit
    scale = np.where(is_message[graph.use_owners] & (graph.use_resource >= links), unit, 1.0)
    moving = moving[np.isin(program.kind[moving], _BY_LIBRARY)]
    ids = program_graph.task_of[:, moving]
    taken_s = alone_s(graph)[ids[0]]
    owner, device, count, share = _shares(program, moving, taken_s)
    own = share * taken_s[owner] / work[ids[0, owner]]
    owner, device, own, used = _together(owner, device, own, own * count, len(program.cluster.devices))
    boards = _boards(program.cluster)
    computing, board = _computing(program, boards)
    # Two kinds of uses are added: of devices by messages, and of boards by arithmetic.
    rows = np.concatenate([ids[:, owner].ravel(), program_graph.task_of[:, computing].ravel()])
    resource = np.concatenate([np.tile(links + device, len(ids)), np.tile(len(capacity) + board, len(ids))])
    order = np.argsort(rows, kind="stable")
    place = graph.use_start[rows[order] + 1]
    more = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=graph.size))])

    def weights(before: Floats, uses: Floats) -> Floats:
        """Return weights with those of the uses that are added."""
        added = np.concatenate([np.tile(uses, len(ids)), np.ones(len(ids) * len(board))])
        return np.insert(before * scale, place, added[order])

    changed = replace(
        graph,
        resource_names=JoinedNames(graph.resource_names, tuple(boards)),
        capacity=np.append(capacity, [seconds for _, seconds in boards.values()]),
        exclusive=np.append(graph.exclusive, np.zeros(len(boards), dtype=np.bool_)),
        work=work,
        use_start=graph.use_start + more,
        use_resource=np.insert(graph.use_resource, place, resource[order]),
        use_weight=weights(graph.use_weight, used),
        own_weight=None if graph.own_weight is None else weights(graph.own_weight, own),
    )
    return replace(program_graph, graph=changed, unit_bytes=unit)


def _boards(cluster: DeviceGraph) -> dict[str, tuple[list[int], float]]:
    """Return the devices of each board that slows them down, and their speeds all together, by the board's name."""
    members: dict[str, list[int]] = {}
    speed, names = cluster.devices.of_each(lambda device: device.board_speed), cluster.devices.names
    for i in np.flatnonzero(speed < 1).tolist():
        members.setdefault(names[i].rpartition("/")[0], []).append(i)
    return {f"{name} board": (row, sum(speed[row].tolist())) for name, row in members.items() if len(row) > 1}


def _computing(program: Program, boards: dict[str, tuple[list[int], float]]) -> tuple[Ints, Ints]:
    """Return the tasks of arithmetic on devices of boards, and the index of the board of each."""
    board_of = np.full(len(program.cluster.devices), -1)
    for index, (row, _) in enumerate(boards.values()):
        board_of[row] = index
    compute = np.flatnonzero(program.is_compute)
    compute = compute[board_of[program.device[compute]] >= 0]
    return compute, board_of[program.device[compute]]


def _shares(program: Program, moving: Ints, taken_s: Floats) -> tuple[Ints, Ints, Ints, Floats]:
    """Return the share of each device that a message takes at its full rate.

    Args:
        program: The program.
        moving: Shape (M,): tasks that move messages.
        taken_s: Shape (M,): time that each takes alone.

    Returns:
        Index into ``moving``, device, number of messages of the device for which it stands, and share of each use,
        shape (uses,) each.
    """
    devices = program.cluster.devices
    profiles = {device.profile: load_profile(device.profile) for device in devices.kinds}
    channels = devices.of_each(lambda each: each.communication_channels / profiles[each.profile].multiprocessors)
    memory_bytes_per_s = devices.of_each(lambda each: profiles[each.profile].memory_bytes_per_s * each.speed)
    owner, device, count, accessed = (np.concatenate(each) for each in zip(*_accesses(program, moving), strict=True))
    used = channels[device] > 0
    owner, device, count, accessed = owner[used], device[used], count[used], accessed[used]
    share = channels[device] + accessed / memory_bytes_per_s[device] / taken_s[owner]
    return owner, device, count, np.minimum(share, _MOST)


def _together(owner: Ints, device: Ints, own: Floats, used: Floats, devices: int) -> tuple[Ints, Ints, Floats, Floats]:
    """Return the uses of devices with those of one message joined that stand for its sender and its receiver.

    Args:
        owner: Message of each use, shape (uses,), as of the devices and uses that follow.
        device: Device.
        own: What one message uses.
        used: What all for which it stands use.
        devices: Devices of the cluster.
    """
    keys, first, row = np.unique(owner * devices + device, return_index=True, return_inverse=True)
    if len(keys) == len(owner):
        return owner, device, own, used
    most = np.zeros(len(keys))
    np.maximum.at(most, row, own)
    return owner[first], device[first], most, np.bincount(row, used, minlength=len(keys)).astype(np.float64)


def _accesses(program: Program, moving: Ints) -> Iterator[tuple[Ints, Ints, Ints, Floats]]:
    """Yield messages, the devices at their ends, how many each has of them, and the bytes that it reads or writes.

    Each byte that is sent is read once, each that is received is written once, and one that is added is read once more.
    """
    sends = np.flatnonzero(program.peer[moving] >= 0)
    for end in (program.device, program.receiver):
        device = end[moving[sends]]
        yield sends, device, program.each(device, moving[sends]), program.size_bytes[moving[sends]]
    known: dict[tuple[int, float], tuple[Ints, Floats]] = {}
    for index in np.flatnonzero(program.peer[moving] < 0).tolist():
        collective = program.collectives[int(moving[index])]
        key = id(collective.round), collective.buffer_bytes
        if key not in known:
            accessed = _accessed_bytes(collective, len(program.cluster.devices))
            device = at = np.flatnonzero(accessed)
            if program.classes is not None:  # of others, nothing is replayed
                device, first = np.unique(program.classes.device_like[device], return_index=True)
                at = at[first]
            known[key] = device, accessed[at]
        device, accessed = known[key]
        yield np.full(len(device), index), device, np.ones(len(device), dtype=np.int64), accessed


def _accessed_bytes(collective: Collective, count: int) -> Floats:
    """Return the bytes that each of ``count`` devices reads or writes for a collective."""
    step, accessed = collective.round, np.zeros(count)
    message_bytes = step.share * collective.buffer_bytes
    np.add.at(accessed, step.source, message_bytes * step.repeats)
    np.add.at(accessed, step.target, message_bytes * (step.repeats + step.adds))
    return accessed
