"""Processes of the workbench: they end with the process that started them, and what they say goes through pipes."""

import os
import signal
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from groundwork.errors import ConfigError, OrreryError

_CONTEXT = get_context("forkserver")
"""Starts processes from one that has imported everything, which takes hundredths of a second instead of seconds."""
_CONTEXT.set_forkserver_preload(["orrery.workbench.bench_process"])
# What is started holds pipes alone, of which nothing is left behind, and a new tracker takes the place of a killed one.
warnings.filterwarnings("ignore", "resource_tracker: process died unexpectedly", UserWarning)
_LONGEST_S = 60.0
"""Time that reading an upload or drawing a cluster may take."""
_starting, _ending = threading.Lock(), threading.Event()
"""Held while a process starts, and set once none may start any more."""


@dataclass(frozen=True, slots=True)
class BrokeOff:
    """An error that a process reports."""

    message: str
    is_defect: bool = False
    """True where the input is not to blame."""


def follow_parent() -> None:
    """End this process as soon as its parent ends, however that ends; leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def report_of(error: Exception) -> BrokeOff:
    """Return what to tell of an error: the rule that the input breaks, or that something broke off."""
    if isinstance(error, OrreryError):
        return BrokeOff(str(error))
    if isinstance(error, MemoryError):
        return BrokeOff("out of memory, or at a limit of it; a smaller batch or fewer devices need less")
    if os.environ.get("ORRERY_DEBUG"):
        import traceback

        traceback.print_exception(error)
    first = (str(error).strip().splitlines() or [""])[0]
    return BrokeOff(f"the computation broke off ({type(error).__name__}: {first})", is_defect=True)


def start_process(function: Callable[..., None], *arguments: Any, daemon: bool) -> tuple[BaseProcess, Connection]:
    """Start a function in a process of its own; return the process, and our end of a pipe to it.

    Raises:
        ConfigError: The server ends, or what starts processes was killed.
        OSError: No process can be started.
    """
    with _starting:
        if _ending.is_set():
            raise ConfigError("the workbench ends")
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=function, args=(theirs, *arguments), daemon=daemon)
        # Ctrl-C is the server's: what is started inherits that it is blocked, also while it still loads.  Starting the
        # tracker of multiprocessing unblocks it, so that comes first.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with theirs:
                process.start()
        except (EOFError, ConnectionError):  # what starts processes was killed; it is started anew
            raise ConfigError("no process could be started; try again") from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return process, ours


def end_processes() -> None:
    """End every process below this one, also one that is just being started, and let no more start."""
    _ending.set()
    while not _starting.acquire(timeout=0.02):
        _kill_below()  # what starts a process waits for one of these
    _starting.release()
    _kill_below()


def _kill_below() -> None:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            process.kill()


def _answer(pipe: Connection, folder: Path, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Send what a function returns, or why it failed."""
    follow_parent()
    os.chdir(folder)
    try:
        pipe.send(function(*arguments))
    except Exception as error:
        pipe.send(report_of(error))


def run_once(folder: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function in a process of its own and return its result.

    Raises:
        ConfigError: It refuses its input, takes more than a minute, or its process was killed.
    """
    process, ours = start_process(_answer, folder, function, arguments, daemon=True)
    try:
        if not ours.poll(_LONGEST_S):
            raise ConfigError(f"this took more than {_LONGEST_S:g} s and was ended; a smaller file takes less")
        result = ours.recv()
    except (EOFError, OSError):
        process.join(1)
        raise ConfigError(
            f"the process of this request ended ({process.exitcode}), perhaps for want of memory"
        ) from None
    finally:
        process.kill()
        ours.close()
    if isinstance(result, BrokeOff):
        raise ConfigError(result.message)
    return result
