"""Progress of a job, from the rows of its status board."""

import math
from collections.abc import Callable, Sequence

from executor.supervision.status_board import RankRow
from groundwork.progress import Progress


def reporter(
    progress: Progress | None, label: Callable[[Sequence[RankRow]], str], total: int
) -> Callable[[Sequence[RankRow]], None] | None:
    """Return the callback of ``supervise`` that reports progress; None without a report.

    Args:
        progress: Called as ``progress(label, done, total)``, with the number of steps that every rank has begun.
        label: Returns a description of what the rows of the board show.
        total: Steps of the whole job.
    """
    if progress is None:
        return None
    report = progress

    def show(rows: Sequence[RankRow]) -> None:
        """Report the progress that the rows show."""
        report(label(rows), max(min(row.step for row in rows), 0), total)

    return show


def loss_of(rows: Sequence[RankRow]) -> str:
    """Return the loss, which is the sum of the ranks' shares, once all ranks have one; until then ``starting``."""
    losses = [row.loss for row in rows]
    return "starting" if any(map(math.isnan, losses)) else f"loss {sum(losses):.4g}"
