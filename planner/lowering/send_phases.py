"""When devices send: phase by phase, each as soon as all that it waits for is done.

The executor's ranks and the account of memory read these rules; neither has its own.
"""

import numpy as np

from hwprofiles import Floats, Ints
from planner.lowering.program import KINDS, Program

__all__ = ["MESSAGE_JOIN_BYTES", "PAIR_BYTES", "SendPhases", "phases", "program_order"]


MESSAGE_JOIN_BYTES = 64 * 1024
"""Regions of one tensor for one device, ready at once, travel as one message up to this size: a message costs gloo
about 0.4 ms, which is 64 KB at the 150 MB/s that it moves in messages of that size."""

PAIR_BYTES = 4 * 1024 * 1024
"""Over gloo two ranks sum so much of a buffer at a time, half of it each, in a place of its own."""

_TRANSFER, _COMPRESS = KINDS.index("transfer"), KINDS.index("compress")
_DONE, _ENCODED, _SENT = 0.5, 0.625, 0.75


def phases(program: Program) -> Ints:
    """Group of tasks after which each transfer, and what encodes for it, is sent; -1 for all other tasks.

    That is the last group that one of its own group waits for, or what encodes for them does.

    Returns:
        Shape (T,).
    """
    encodes = (program.kind == _COMPRESS) & (program.consumer >= 0)
    sends = program.kind == _TRANSFER
    waiting = program.waiting
    last = np.full(program.group.max(initial=-1) + 1, -1, dtype=np.int64)
    for mine in (encodes, sends):
        rows = mine[waiting]
        before = program.group[program.after[rows]]
        value = np.where(last[before] >= 0, last[before], before)
        np.maximum.at(last, program.group[waiting[rows]], value)
    return np.asarray(np.where(encodes | sends, last[program.group], -1))


def program_order(program: Program) -> tuple[Floats, Floats]:
    """Begin and end of every task where tasks follow one another as in the program, but messages leave in their phase.

    What is sent leaves, and arrives, before anything that follows the phase begins.

    Returns:
        Shape (T,) each, in numbers of tasks.
    """
    phase, place = phases(program), np.arange(program.size, dtype=float)
    last = np.zeros(program.group.max(initial=-1) + 1)
    np.maximum.at(last, program.group, place)
    start, end = place, place + _DONE
    moving = phase >= 0
    after, coded = last[phase[moving]], program.kind[moving] == _COMPRESS
    start[moving] = after + np.where(coded, _DONE, _ENCODED)
    end[moving] = after + np.where(coded, _ENCODED, _SENT)
    return start, end


class SendPhases:
    """Between which of its tasks every device sends and gets ready to receive.

    Args:
        program: What runs.
    """

    def __init__(self, program: Program) -> None:
        self._program, self._phase = program, phases(program)
        tasks = np.flatnonzero(program.is_compute & ~program.is_codec)
        self._tasks = tasks[np.argsort(program.device[tasks], kind="stable")]
        self._groups = int(program.group.max(initial=-1)) + 1
        mine = self._tasks
        self._keys = np.maximum.accumulate(program.device[mine] * self._groups + program.group[mine])
        sends = np.flatnonzero(program.kind == _TRANSFER)
        moments = [self._places(program.device[sends], sends), self._places(program.peer[sends], sends)]
        self._moments = np.unique(np.concatenate(moments))
        self._moments = self._moments[self._moments >= 0]

    def _places(self, device: Ints, transfers: Ints) -> Ints:
        """Places in ``_tasks`` of devices' last tasks before they send or expect transfers; -1 before the first."""
        place = np.searchsorted(self._keys, device * self._groups + self._phase[transfers], side="right") - 1
        mine = (place >= 0) & (self._program.device[self._tasks[place]] == device)
        return np.where(mine, place, -1)

    def before(self, transfers: Ints, device: Ints) -> Ints:
        """The tasks after which devices, senders or receivers, hand transfers over; -1 where they have none before."""
        place = self._places(device, transfers)
        return np.where(place >= 0, self._tasks[place], -1)

    def forgotten_s(self, transfers: Ints, end_s: Floats) -> Floats:
        """When senders on processors forget what they sent: as they next send or expect something after it has left,
        at the latest with the iteration.

        Args:
            transfers: Which.
            end_s: Shape (T,): of all tasks.

        Returns:
            Of the shape of ``transfers``.
        """
        program, sent = self._program, end_s[transfers]
        device, own = program.device[transfers], self._places(program.device[transfers], transfers)
        found = np.empty(len(transfers))
        for d in np.unique(device).tolist():
            rows = np.flatnonzero(device == d)
            moments = self._moments[program.device[self._tasks[self._moments]] == d]
            times = end_s[self._tasks[moments]]
            next_one = np.maximum(
                np.searchsorted(moments, own[rows], side="right"), np.searchsorted(times, sent[rows], side="left")
            )
            last = end_s[program.is_compute & (program.device == d)].max(initial=-np.inf)
            found[rows] = np.append(times, last)[next_one]
        return np.maximum(found, sent)
