"""The fast engine: the meaning of ``simpy_engine``, compiled, in loops over arrays (``simulator.compiled``).

What makes it fast:

* Only binding resources couple activities; everything else runs at its rate alone: see ``compiled.fairness``.
* Only the activities that a change reaches are solved again: see ``compiled.fairness.share``.
* An activity that keeps its rate keeps its entry in the event heap; one that does not leaves it behind,
  and it is known to be stale by its serial number.
* Timers set at one instant for one time share an entry too.
"""

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from simulator.compiled import FINISHED, initial_state, replay_of
from simulator.graph import Schedule, TaskGraph

__all__ = ["COMPILED_FILES", "digest", "is_cached", "replay", "simulate"]

_SIMULATOR = Path(__file__).parents[1]
COMPILED_FILES = (*sorted((_SIMULATOR / "compiled").glob("*.py")), _SIMULATOR / "graph" / "sharing.py")
"""Whatever compiled code is made of."""


def digest(paths: Iterable[Path]) -> int:
    """A whole number of 56 bits that tells the contents of files from others."""
    return int.from_bytes(sha256(b"".join(path.read_bytes() for path in paths)).digest()[:7])


replay = replay_of(digest(COMPILED_FILES))


def simulate(graph: TaskGraph) -> Schedule:
    """Replay a valid task graph (see ``simulator.graph.graph_checks``)."""
    state = initial_state(graph)
    replay(state)
    assert state.counts[FINISHED] == graph.size, "a valid graph runs to its end"
    return Schedule(ready_s=state.ready_s, start_s=state.start_s, end_s=state.end_s)


def is_cached() -> bool:
    """Whether this process need not compile: it has, or the code of these very sources is on disk."""
    dispatcher: Any = replay
    saved_code = Path(dispatcher.stats.cache_path).glob("event_loop.*.nbi")
    newest_s = max(path.stat().st_mtime for path in COMPILED_FILES)
    return bool(dispatcher.signatures) or any(index.stat().st_mtime >= newest_s for index in saved_code)
