"""The fast engine: the semantics of ``simpy_engine``, in loops over arrays that are compiled (``simulator.compiled``).

The first small graphs of a process are replayed by the same loops in plain Python, sooner than numba is loaded.

It is fast for six reasons:

* Only binding resources couple activities; every other activity runs at its rate alone: see ``compiled.fairness``.
* Only the activities that a change affects are solved again: see ``compiled.fairness.update_rates``.
* An activity that keeps its rate keeps its entry in the event heap; one whose rate changes leaves the entry
  behind, and the serial number of the entry shows that it is stale.
* Resources that never decide anything are left out: see ``compiled.covered``.
* A task that waits for exclusive resources is looked at when one of them is free: see ``compiled.ports``.
* Timers set at one instant for one time share an entry.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep, thread_time

import numpy as np

from simulator.compiled.event_loop import replay_of
from simulator.compiled.initial import initial_state
from simulator.compiled.jit import PLAIN_S, pays
from simulator.compiled.state import ReplayState
from simulator.graph.task_graph import Schedule, TaskGraph

_SIMULATOR = Path(__file__).parents[1]
COMPILED_FILES = (*sorted((_SIMULATOR / "compiled").glob("*.py")), _SIMULATOR / "graph" / "sharing.py")
"""Sources of the compiled code."""


def digest(paths: Iterable[Path]) -> int:
    """Return a hash of the contents of files as a whole number of 56 bits."""
    return int.from_bytes(sha256(b"".join(path.read_bytes() for path in paths)).digest()[:7])


_MOST_WAIT_S, _POLL_S = 600.0, 0.1
"""How long one process waits at most until another has compiled, and how often it looks."""
_SOURCES = digest(COMPILED_FILES)
replay_kernel = replay_of(_SOURCES)
"""The replay of a state, in plain Python or compiled."""
_TASKS_A_CALL = 20_000
"""Tasks that may end before the replay returns: some 50 ms of compiled code, which no signal interrupts."""
_PLAIN_USE_S = 1e-5
"""Processor time that plain Python takes for a task or for a use of a resource, where few share one."""
_PLAIN_TASKS = 50
"""Tasks that end before plain Python looks whether it takes far longer, as where all share one resource."""


def replay_compiled(graph: TaskGraph) -> Schedule:
    """Replay a valid task graph (see ``simulator.graph.graph_checks``)."""
    if not pays(_PLAIN_USE_S * (graph.size + len(graph.use_resource))) and (schedule := replay_plain(graph, PLAIN_S)):
        return schedule
    is_first = not replay_kernel.compiled.signatures
    with _alone() if is_first and not is_cached() else nullcontext():
        state = initial_state(graph)
        while replay_kernel.compiled(state, _TASKS_A_CALL):  # a signal is heard in between
            pass
        if is_first:
            _mark_as_cached()
    return _schedule(graph, state)


def replay_plain(graph: TaskGraph, most_s: float) -> Schedule | None:
    """Replay a valid task graph without numba; None where that takes more processor time than ``most_s``."""
    state, end_s = initial_state(graph, in_python=True), thread_time() + most_s
    while replay_kernel.plain(state, _PLAIN_TASKS):
        if thread_time() > end_s:
            return None
    return _schedule(graph, state)


def _schedule(graph: TaskGraph, state: ReplayState) -> Schedule:
    """Return the times of a replay that has ended."""
    ready_s, start_s, end_s = map(np.asarray, (state.ready_s, state.start_s, state.end_s))
    return Schedule(ready_s=ready_s, start_s=start_s, end_s=end_s)


def is_cached() -> bool:
    """Return whether the replay is compiled already, in this process or on disk, from these very sources."""
    return bool(replay_kernel.compiled.signatures) or _mark().exists()


@contextmanager
def _alone(wait_s: float = _MOST_WAIT_S) -> Iterator[None]:
    """Compile, and say so, or wait while another process compiles, whose code is then on disk.

    Where no file can be locked, or it takes too long, go on.  The system takes the lock from a process that has ended.
    It is given back here, for closing the file is not enough where a process that was forked meanwhile has it open,
    too.
    """
    print("compiling the simulation engine, once for this machine ...", file=sys.stderr, flush=True)
    try:
        from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock  # not on every system

        file = Path(replay_kernel.compiled.stats.cache_path, "replay.lock").open("w")  # noqa: SIM115 - it may not be opened
    except (ImportError, OSError):
        yield
        return
    with file:
        end_s = monotonic() + wait_s
        while monotonic() < end_s:
            try:
                flock(file, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                sleep(_POLL_S)
            except OSError:
                break
            else:
                break
        try:
            yield
        finally:
            with suppress(OSError):
                flock(file, LOCK_UN)


def _mark() -> Path:
    """Return the file that says that the code of these sources is on disk."""
    # Their digest, and the date that numba compares: that of the file with the replay.
    loop = _SIMULATOR / "compiled" / "event_loop.py"
    return Path(replay_kernel.compiled.stats.cache_path) / f"replay-{_SOURCES:x}-{loop.stat().st_mtime_ns:x}.cached"


def _mark_as_cached() -> None:
    """Note that the code is on disk, if it is, in the place of what was noted of other sources."""
    mark = _mark()
    if mark.exists() or not any(mark.parent.glob("event_loop.*.nbi")):
        return
    # A folder that cannot be written has no code of ours either.
    with suppress(OSError):
        for old in mark.parent.glob("replay-*.cached"):
            old.unlink(missing_ok=True)
        mark.touch()
