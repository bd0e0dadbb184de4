"""Signals that end a command: each cleans up as Ctrl-C does, and has its own words and exit code."""

import signal
from types import FrameType
from typing import NoReturn

__all__ = ["ENDED_BY", "interrupt", "received"]

ENDED_BY = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
"""Signals that end a command, each with what is said of it; the exit code is 128 plus the signal's number."""
_received = [signal.SIGINT]


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal as Ctrl-C: the command cleans up, and ends with the words and the code of that signal."""
    _received[0] = signal.Signals(number)
    raise KeyboardInterrupt


def received() -> signal.Signals:
    """Return the signal that has interrupted the command."""
    return _received[0]
