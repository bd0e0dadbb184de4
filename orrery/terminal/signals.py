"""Signals that end a command: each cleans up as Ctrl-C does, and has its own words and exit code."""

import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn, ParamSpec, TypeVar

_Asked = ParamSpec("_Asked")
_Result = TypeVar("_Result")

ENDED_BY = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
"""Signals that end a command, each with what is said of it; the exit code is 128 plus the signal's number."""
_received: list[signal.Signals] = []
"""Signals that have interrupted the command."""
_held: list[bool] = []
"""Empty, or whether a signal has come while signals are held."""
_cut_short: list[bool] = []
"""Empty, or whether what the command shows is a part of what was asked for."""
_AGAIN_S = 0.01


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal as Ctrl-C: the command cleans up, and ends with the words and the code of that signal."""
    _received.append(signal.Signals(number))
    if _held:
        _held[:] = [True]
    else:
        raise KeyboardInterrupt


def hold_signals() -> None:
    """Let signals interrupt the command only after ``release_signals``, which must come soon."""
    if not _held:
        _held.append(False)


def release_signals() -> None:
    """Let signals interrupt the command again; one that came meanwhile does so now.

    Raises:
        KeyboardInterrupt: A signal has come since ``hold_signals``.
    """
    came = any(_held)
    _held.clear()
    if came:
        raise KeyboardInterrupt


def received() -> signal.Signals | None:
    """Return the signal that has interrupted the command last, if any has."""
    return _received[-1] if _received else None


def kept(work: Callable[_Asked, _Result], *arguments: _Asked.args, **options: _Asked.kwargs) -> _Result:
    """Do the work of a command; after an interrupt return what of it is finished, for the command to write and show.

    The command ends as interrupted all the same, and another interrupt meanwhile ends it at once.
    """
    from groundwork.progress import Interrupted  # the program handles signals before it finds other packages

    try:
        return work(*arguments, **options)
    except Interrupted as error:
        _cut_short.append(True)
        finished: _Result = error.finished
        return finished


def cut_short() -> bool:
    """Return whether ``kept`` has met an interrupt."""
    return bool(_cut_short)


def forget_signals() -> None:
    """Forget what an earlier command in this process has met."""
    _received.clear()
    _cut_short.clear()


def _interrupt_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Interrupt once more, a little later, where an interrupt was lost: in a callback from compiled code, for instance.

    A hook for ``sys.unraisablehook``; other exceptions are reported as always.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    else:
        sys.__unraisablehook__(unraisable)


def _interrupt_late(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def hear_signals(numbers: Sequence[signal.Signals]) -> None:
    """Let signals interrupt the command from here on, wherever they come."""
    signal.signal(signal.SIGALRM, _interrupt_late)
    sys.unraisablehook = _interrupt_again
    for number in numbers:
        signal.signal(number, _interrupt)
