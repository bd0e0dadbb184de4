"""Task that each task of an iteration waited for last."""

import numpy as np

from hwprofiles import Floats, Ints, row_owners
from planner.lowering import Program
from planner.simulation.execution_models import ProgramGraph
from simulator.graph import Schedule

__all__ = ["last_waited_for", "last_waits_of", "stream_before"]


def last_waits_of(program_graph: ProgramGraph, schedule: Schedule, iteration: int) -> Ints:
    """Return for each task of a replayed iteration the one whose end let it begin.

    Args:
        program_graph: Task graph of all iterations.
        schedule: Its times.
        iteration: Iteration of the replay.

    Returns:
        Tasks of the same iteration, shape (T,); -1 where that was a task of an iteration before, and where a task
        waits for nothing.  Of tasks that are one activity, the first stands for all.
    """
    graph, activities = program_graph.graph, program_graph.task_of[iteration]
    queued = _before_in(graph.stream)
    second = np.flatnonzero(queued >= 0)
    late, early = np.append(row_owners(graph.after_start), second), np.append(graph.after, queued[second])
    causes = _last(late, early, schedule.end_s[early], graph.size)[activities]
    represents = np.full(graph.size + 1, -1, dtype=np.int64)  # the last entry stands for no cause
    represents[activities[::-1]] = np.arange(len(activities))[::-1]
    return np.asarray(represents[causes], dtype=np.int64)


def last_waited_for(program: Program, end_s: Floats, before_end_s: Floats | None = None) -> Ints:
    """Return the same for times from elsewhere, by the dependencies and the order of arithmetic of a program.

    Args:
        program: One iteration.
        end_s: End of each task in the iteration, shape (T,); NaN where it is unknown.
        before_end_s: End of each task in the iteration before, on the same clock, shape (T,); None in the first.

    Returns:
        Tasks of the same iteration, shape (T,); -1 as above.
    """
    queued = stream_before(program)
    second = np.flatnonzero(queued >= 0)
    late, early = np.append(program.waiting, second), np.append(program.after, queued[second])
    ended_s = end_s[early]
    if before_end_s is not None and len(program.carried):
        late, early = np.append(late, program.carried[:, 0]), np.append(early, np.full(len(program.carried), -1))
        ended_s = np.append(ended_s, before_end_s[program.carried[:, 1]])
    return _last(late, early, ended_s, program.size)


def stream_before(program: Program) -> Ints:
    """Return the compute task before each one on its device, shape (T,); -1 if there is none."""
    return _before_in(np.where(program.is_compute & ~program.is_codec, program.device, -1))


def _before_in(stream: Ints) -> Ints:
    """Return the task before each one in its stream; -1 for the first of each, and outside streams.

    Streams [0, -1, 0, 0] of four tasks sort to tasks 1, 0, 2, 3: 0 comes before 2, and 2 before 3.
    """
    before = np.full(len(stream), -1, dtype=np.int64)
    order = np.argsort(stream, kind="stable")
    follows = (stream[order][1:] == stream[order][:-1]) & (stream[order][1:] >= 0)
    before[order[1:][follows]] = order[:-1][follows]
    return before


def _last(late: Ints, early: Ints, ended_s: Floats, size: int) -> Ints:
    """Return for each of ``size`` tasks the cause that ended last; -1 for those that are not in ``late``.

    Pairs are put in order of task and end, so that the last one of each task is written last::

        late    4 4 5 4        in order    4 4 4 5
        early   1 2 3 0        causes      2 0 1 3   of 4 it is 1, which ended last
    """
    order = np.lexsort((np.nan_to_num(ended_s, nan=-np.inf), late))
    causes = np.full(size, -1, dtype=np.int64)
    causes[late[order]] = early[order]
    return causes
