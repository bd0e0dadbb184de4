"""What each task waited for last: of its dependencies, and of the tasks before it in its stream."""

import numpy as np

from groundwork.array_types import Floats, Ints


def before_in_streams(stream: Ints) -> Ints:
    """Return the task before each one in its stream, shape (T,); -1 for the first of each, and outside streams.

    Streams [0, -1, 0, 0] of four tasks sort to tasks 1, 0, 2, 3: 0 comes before 2, and 2 before 3.

    Args:
        stream: Stream of each task, shape (T,); negative outside streams.
    """
    before = np.full(len(stream), -1, dtype=np.int64)
    order = np.argsort(stream, kind="stable")
    follows = (stream[order][1:] == stream[order][:-1]) & (stream[order][1:] >= 0)
    before[order[1:][follows]] = order[:-1][follows]
    return before


def last_causes(late: Ints, early: Ints, ended_s: Floats, size: int) -> Ints:
    """Return for each of ``size`` tasks the cause that ended last; -1 for those that wait for nothing.

    Pairs are put in order of task and end, so that the last one of each task is written last::

        late    4 4 5 4        in order    4 4 4 5
        early   1 2 3 0        causes      2 0 1 3   of 4 it is 1, which ended last

    Args:
        late: Task that waits, shape (pairs,).
        early: What it waits for, shape (pairs,).
        ended_s: End of that, shape (pairs,); NaN, where it is unknown, counts as first.
        size: Number of tasks.
    """
    order = np.lexsort((np.nan_to_num(ended_s, nan=-np.inf), late))
    causes = np.full(size, -1, dtype=np.int64)
    causes[late[order]] = early[order]
    return causes
