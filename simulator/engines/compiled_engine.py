"""The fast engine: the semantics of ``simpy_engine``, compiled, in loops over arrays (``simulator.compiled``).

It is fast for four reasons:

* Only binding resources couple activities; every other activity runs at its rate alone: see ``compiled.fairness``.
* Only the activities that a change affects are solved again: see ``compiled.fairness.update_rates``.
* An activity that keeps its rate keeps its entry in the event heap; one whose rate changes leaves the entry
  behind, and the serial number of the entry shows that it is stale.
* Timers set at one instant for one time share an entry.
"""

from collections.abc import Iterable
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


replay_kernel = replay_of(digest(COMPILED_FILES))
"""The compiled replay of a state, which is compiled or loaded from disk at its first call."""


def replay_compiled(graph: TaskGraph) -> Schedule:
    """Replay a valid task graph (see ``simulator.graph.graph_checks``)."""
    state = initial_state(graph)
    replay_kernel(state)
    assert state.counts[FINISHED] == graph.size, "a valid graph runs to its end"
    return Schedule(ready_s=state.ready_s, start_s=state.start_s, end_s=state.end_s)


def is_cached() -> bool:
    """Return whether the replay is compiled already, in this process or on disk, from these very sources."""
    dispatcher: Any = replay_kernel
    saved_code = Path(dispatcher.stats.cache_path).glob("event_loop.*.nbi")
    newest_s = max(path.stat().st_mtime for path in COMPILED_FILES)
    return bool(dispatcher.signatures) or any(index.stat().st_mtime >= newest_s for index in saved_code)
