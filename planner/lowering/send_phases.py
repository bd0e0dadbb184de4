"""Send phases: a device sends all of a phase at once, as soon as everything that its messages wait for is done.

The executor's ranks and the account of memory both follow these rules.
"""

import numpy as np

from groundwork.array_types import Floats, Ints
from planner.lowering.program import KINDS, Program

_TRANSFER, _COMPRESS = KINDS.index("transfer"), KINDS.index("compress")
_DONE, _COMPRESSED, _SENT = 0.5, 0.625, 0.75
"""Moments after a task's place in program order: it is done, what follows it is compressed, and has arrived."""


def phases(program: Program) -> Ints:
    """Return the phase of every transfer and collective between layers: the group of tasks after which it begins.

    That is the last group that a task of its own group waits for or, where the messages are compressed, that their
    compress tasks wait for.  Of several collectives, one after another, it is the phase of the first.

        group 3   forward of conv, parts 0 to 3
        group 4   compress tasks: wait for group 3, phase 3
        group 5   transfers: wait for group 4, phase 3, that of their compress tasks

    Returns:
        Shape (T,): group, for transfers, their compress tasks and collectives between layers; -1 for all other tasks.
    """
    compresses = (program.kind == _COMPRESS) & (program.consumer >= 0)
    sends = program.kind == _TRANSFER
    brings = program.moves_activations & (program.layer != program.consumer)
    waiting = program.waiting
    phase_of = np.full(program.group.max(initial=-1) + 1, -1, dtype=np.int64)  # by group of what is sent
    for mine in (compresses, sends):  # in this order: transfers take over the phase of their compress tasks
        rows = mine[waiting]
        before = program.group[program.after[rows]]
        value = np.where(phase_of[before] >= 0, phase_of[before], before)
        np.maximum.at(phase_of, program.group[waiting[rows]], value)
    groups, rows = len(phase_of), brings[waiting]
    begins = np.full(groups, -1, dtype=np.int64)
    pairs = np.unique(program.group[waiting[rows]] * groups + program.group[program.after[rows]])
    for group, before in zip(*(each.tolist() for each in np.divmod(pairs, groups)), strict=True):
        begins[group] = max(begins[group], begins[before] if begins[before] >= 0 else before)
    phase = np.where(brings, begins[program.group], np.where(compresses | sends, phase_of[program.group], -1))
    return np.asarray(phase)


def program_order(program: Program) -> tuple[Floats, Floats]:
    """Return start and end of every task if tasks ran one after another in program order, but messages in their phase.

    Messages leave, and arrive, after their phase and before the next task begins, as do collectives between layers.

    Returns:
        Shape (T,) each, in numbers of tasks.
    """
    phase, place = phases(program), np.arange(program.size, dtype=float)
    last = np.zeros(program.group.max(initial=-1) + 1)
    np.maximum.at(last, program.group, place)
    start, end = place, place + _DONE
    moving = phase >= 0
    after, compresses = last[phase[moving]], program.kind[moving] == _COMPRESS
    start[moving] = after + np.where(compresses, _DONE, _COMPRESSED)
    end[moving] = after + np.where(compresses, _COMPRESSED, _SENT)
    return start, end


class SendPhases:
    """Tasks between which every device sends messages and posts its receives.

    Args:
        program: The program.
    """

    def __init__(self, program: Program) -> None:
        self._program, self._phase = program, phases(program)
        tasks = np.flatnonzero(program.is_compute & ~program.is_codec)
        self._tasks = tasks[np.argsort(program.device[tasks], kind="stable")]
        """Compute tasks, device by device, each in program order."""
        self._groups = int(program.group.max(initial=-1)) + 1
        mine = self._tasks
        self._keys = np.maximum.accumulate(program.device[mine] * self._groups + program.group[mine])
        """Device and group of these tasks as one rising number, to be searched."""
        sends = np.flatnonzero(program.kind == _TRANSFER)
        moments = [self._places(program.device[sends], sends), self._places(program.receiver[sends], sends)]
        self._moments = np.unique(np.concatenate(moments))
        self._moments = self._moments[self._moments >= 0]
        """Places in ``_tasks`` after which their device sends or expects messages, sorted."""

    def _places(self, device: Ints, transfers: Ints) -> Ints:
        """Return the places in ``_tasks`` of devices' last tasks before the phases of transfers.

        Args:
            device: Shape (K,): senders or receivers.
            transfers: Shape (K,).

        Returns:
            Shape (K,); -1 where a device has no task before.
        """
        place = np.searchsorted(self._keys, device * self._groups + self._phase[transfers], side="right") - 1
        mine = (place >= 0) & (self._program.device[self._tasks[place]] == device)
        return np.where(mine, place, -1)

    def before(self, transfers: Ints, device: Ints) -> Ints:
        """Return the tasks after which devices hand transfers over to be sent or received.

        Args:
            transfers: Shape (K,).
            device: Shape (K,): their senders or receivers.

        Returns:
            Shape (K,): tasks; -1 where a device has none before.
        """
        place = self._places(device, transfers)
        return np.where(place >= 0, self._tasks[place], -1)

    def noticed_s(self, transfers: Ints, end_s: Floats) -> Floats:
        """Return when senders notice that transfers have left: as they next send or expect a message.

        Messages that nothing follows are noticed at the end of the device's iteration.

        Args:
            transfers: Shape (K,).
            end_s: Shape (T,): end of all tasks.

        Returns:
            Shape (K,).
        """
        program, sent = self._program, end_s[transfers]
        device, own = program.device[transfers], self._places(program.device[transfers], transfers)
        noticed = np.empty(len(transfers))
        for d in np.unique(device).tolist():
            rows = np.flatnonzero(device == d)
            moments = self._moments[program.device[self._tasks[self._moments]] == d]
            times = end_s[self._tasks[moments]]
            # the first moment of the device behind the transfer's own phase, and not before the transfer has ended
            following = np.maximum(
                np.searchsorted(moments, own[rows], side="right"), np.searchsorted(times, sent[rows], side="left")
            )
            last = end_s[program.is_compute & (program.device == d)].max(initial=-np.inf)
            noticed[rows] = np.append(times, last)[following]
        return np.maximum(noticed, sent)
