"""What the status board of a job says, told to whoever shows progress."""

import math
from collections.abc import Callable, Sequence

from executor.processes.status_board import RankRow
from hwprofiles import Progress

__all__ = ["loss_of", "reporter"]


def reporter(
    progress: Progress | None, label: Callable[[Sequence[RankRow]], str], total: int
) -> Callable[[Sequence[RankRow]], None] | None:
    """Return what ``executor.processes.supervisor.supervise`` calls with the board; None where nobody asks.

    Args:
        progress: Told as many steps as every rank has begun.
        label: What the rows of the board say, in words.
        total: Steps of the whole job.
    """
    if progress is None:
        return None
    report = progress

    def show(rows: Sequence[RankRow]) -> None:
        """Tell what the rows say."""
        report(label(rows), max(min(row.step for row in rows), 0), total)

    return show


def loss_of(rows: Sequence[RankRow]) -> str:
    """The loss, the sum of the ranks' shares of it, once all ranks have one; until then that they are starting."""
    losses = [row.loss for row in rows]
    return "starting" if any(map(math.isnan, losses)) else f"loss {sum(losses):.4g}"
