"""Start and end of the program: from its first instruction on, a signal ends it with one line and its exit code."""

import os
import signal
import sys
from importlib import import_module
from itertools import takewhile
from types import FrameType
from typing import NoReturn

from orrery.terminal.signals import ENDED_BY, hear_signals

_LEAST_SPACE_BYTES = 2**30


def main() -> NoReturn:
    """Run the command line on the words of the process, and exit with its code."""
    # torchrun asks its ranks to end by SIGTERM, and they do so at once, whatever they wait for.
    asked = (signal.SIGINT,) if "TORCHELASTIC_RUN_ID" in os.environ else tuple(ENDED_BY)
    heard = [number for number in asked if signal.getsignal(number) != signal.SIG_IGN]  # as nohup wants it
    for number in heard:
        signal.signal(number, _end)

    import_own_packages()
    _open_standard_streams()
    _check_address_space()
    import gc

    from orrery.cli import app
    from orrery.terminal.exit_codes import run_app

    gc.set_threshold(200_000, 10, 10)  # what loading makes stays: looking for cycles took a sixth of a start
    hear_signals(heard)
    code = run_app(app)
    for number in heard:
        signal.signal(number, signal.SIG_IGN)  # all is done, and the interpreter's own end takes a while
    # Where a signal came while text was executed, as for a data class, CPython would at its end die of SIGINT in spite
    # of the exit code; executing other text makes it forget.
    exec("")
    gc.freeze()  # a last look for cycles, in all modules, took a quarter of a small plan
    sys.exit(code)


def _open_standard_streams() -> None:
    """Discard what is written where a standard stream is closed, as by ``>&-``.

    Files of the command would else take its number, and what is printed would land in them.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # which takes the lowest free number: this one
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - until the end


def _check_address_space() -> None:
    """End the process where its address space is so small that OpenBLAS, while it is loaded, would try for ever."""
    if sys.platform == "linux":
        import resource

        limit_bytes = resource.getrlimit(resource.RLIMIT_AS)[0]
        if 0 <= limit_bytes < _LEAST_SPACE_BYTES:
            rule = f"the limit of address space (ulimit -v) must be at least {_LEAST_SPACE_BYTES // 1024} KiB"
            os.write(2, f"orrery: {rule}, got {limit_bytes // 1024}\n".encode())
            os._exit(2)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """End the process, which has not begun anything."""
    os.write(2, f"orrery: {ENDED_BY[signal.Signals(number)]}\n".encode())
    os._exit(128 + number)


_PACKAGES = ("groundwork", "hwprofiles", "simulator", "planner", "studies", "executor", "reports", "orrery")


def import_own_packages() -> None:
    """Import the packages of this installation, for this process and those that it starts.

    ``python -m`` and ``PYTHONPATH`` put folders of the user before the one that holds this file.  Where they hold such
    a name, this folder goes to the front.  What a command later imports of the user, as the code of a model, gets these
    packages by these names too: an interpreter has one module of a name.
    """
    own = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    before = ["", *takewhile(lambda path: os.path.realpath(path) != own, sys.path)]
    files = [os.path.join(path, name + end) for path in before for name in _PACKAGES for end in ("/__init__.py", ".py")]
    if any(os.path.exists(file) and not os.path.realpath(file).startswith(own + os.sep) for file in files):
        sys.path.insert(0, own)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [own, os.environ.get("PYTHONPATH")]))
        os.environ["PYTHONSAFEPATH"] = "1"
    for name in _PACKAGES:
        import_module(name)
