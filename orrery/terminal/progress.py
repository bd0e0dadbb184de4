"""Progress bar on standard error for work that takes longer than a second."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from hwprofiles import Progress

__all__ = ["progress_bar"]


_PATIENCE_S = 1.0
"""Time after which the bar is shown."""


@contextmanager
def progress_bar(label: str) -> Iterator[Progress | None]:
    """Yield a callable that moves a bar, or None where standard error is no terminal.

    Args:
        label: Name of the work, shown until the work reports a label of its own.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    bar = Bar(console=Console(stderr=True), transient=True)
    task = bar.add_task(label, total=None)
    # A timer shows the bar, so that work that reports nothing is seen to go on as well.
    timer = Timer(_PATIENCE_S, bar.start)
    timer.start()
    try:
        yield lambda label, done, total: bar.update(task, description=label, completed=done, total=total)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
