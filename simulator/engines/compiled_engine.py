"""The fast engine: the semantics of ``simpy_engine``, compiled, in loops over arrays (``simulator.compiled``).

It is fast for six reasons:

* Only binding resources couple activities; every other activity runs at its rate alone: see ``compiled.fairness``.
* Only the activities that a change affects are solved again: see ``compiled.fairness.update_rates``.
* An activity that keeps its rate keeps its entry in the event heap; one whose rate changes leaves the entry
  behind, and the serial number of the entry shows that it is stale.
* Resources that never decide anything are left out: see ``compiled.covered``.
* A task that waits for exclusive resources is looked at when one of them is free: see ``compiled.ports``.
* Timers set at one instant for one time share an entry.
"""

from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from simulator.compiled import FINISHED, initial_state, replay_of
from simulator.graph import Schedule, TaskGraph

__all__ = ["COMPILED_FILES", "digest", "is_cached", "replay_compiled", "replay_kernel"]

_SIMULATOR = Path(__file__).parents[1]
COMPILED_FILES = (*sorted((_SIMULATOR / "compiled").glob("*.py")), _SIMULATOR / "graph" / "sharing.py")
"""Sources of the compiled code."""


def digest(paths: Iterable[Path]) -> int:
    """Return a hash of the contents of files as a whole number of 56 bits."""
    return int.from_bytes(sha256(b"".join(path.read_bytes() for path in paths)).digest()[:7])


_SOURCES = digest(COMPILED_FILES)
replay_kernel = replay_of(_SOURCES)
"""The compiled replay of a state, which is compiled or loaded from disk at its first call."""
_dispatcher: Any = replay_kernel  # what numba makes of it


def replay_compiled(graph: TaskGraph) -> Schedule:
    """Replay a valid task graph (see ``simulator.graph.graph_checks``)."""
    state, is_first = initial_state(graph), not _dispatcher.signatures
    replay_kernel(state)
    if is_first:
        _mark_as_cached()
    assert state.counts[FINISHED] == graph.size, "a valid graph runs to its end"
    return Schedule(ready_s=state.ready_s, start_s=state.start_s, end_s=state.end_s)


def is_cached() -> bool:
    """Return whether the replay is compiled already, in this process or on disk, from these very sources."""
    return bool(_dispatcher.signatures) or _mark().exists()


def _mark() -> Path:
    """Return the file that says that the code of these sources is on disk."""
    # Their digest, and the date that numba compares: that of the file with the replay.
    loop = _SIMULATOR / "compiled" / "event_loop.py"
    return Path(_dispatcher.stats.cache_path) / f"replay-{_SOURCES:x}-{loop.stat().st_mtime_ns:x}.cached"


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
