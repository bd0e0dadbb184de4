"""Progress on standard error: a bar on a terminal after a second, elsewhere a line now and then."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread, Timer
from time import monotonic

from groundwork.control_characters import printable
from groundwork.progress import Progress

_PATIENCE_S = 1.0
"""Time after which the bar is shown."""
_FIRST_LINE_S, _MOST_S = 2.0, 60.0
"""Time of the first line where there is no terminal, and the longest time between two; each waits twice as long."""
_SWITCH = "ORRERY_PROGRESS"
"""Variable of the environment that turns progress off."""


@contextmanager
def progress_bar(label: str) -> Iterator[Progress | None]:
    """Yield a callable that says how far the work is; None where nobody wants to know (``ORRERY_PROGRESS=off``)."""
    if os.environ.get(_SWITCH) == "off":
        yield None
        return
    with _bar(label) if sys.stderr.isatty() else _lines(label) as progress:
        yield progress


@contextmanager
def _bar(label: str) -> Iterator[Progress]:
    """Yield a callable that moves a bar."""
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


@contextmanager
def _lines(label: str) -> Iterator[Progress]:
    """Yield a callable that notes how far the work is, which a thread prints after 2, 6, 14, ... seconds."""
    state, done, begin, stream = [label], Event(), monotonic(), sys.stderr

    def say() -> None:
        wait_s = _FIRST_LINE_S
        while not done.wait(wait_s):
            print(f"orrery: after {monotonic() - begin:.0f} s: {printable(state[0])}", file=stream, flush=True)
            wait_s = min(2 * wait_s, _MOST_S)

    def progress(label: str, at: int, total: int) -> None:
        state[0] = f"{label}, {at} of {total}"

    thread = Thread(target=say, daemon=True)
    with suppress(RuntimeError):  # where no thread can be started, the work goes on without lines
        thread.start()
    try:
        yield progress
    finally:
        done.set()
        if thread.ident is not None:
            thread.join()
