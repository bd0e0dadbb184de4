"""How much memory a replay takes, so that one that cannot fit is refused before it starts."""

import os
import resource
from pathlib import Path

from hwprofiles import GIB, InfeasiblePlanError

__all__ = ["available_bytes", "check_replay_memory", "engine_bytes", "graph_bytes"]

_GRAPH = (80, 16, 8)  # bytes a task, a use, a dependency: the arrays of ``TaskGraph``
# Beside the graph, measured as the growth of the resident memory of whole runs, rounded up.
_ENGINES = {"compiled": (200, 40, 16), "simpy": (1_500, 60, 300)}


def graph_bytes(*, tasks: int, uses: int, dependencies: int) -> int:
    """Memory of a task graph, from its numbers of tasks, of uses of resources, and of dependencies."""
    return _weighted(_GRAPH, tasks, uses, dependencies)


def engine_bytes(*, tasks: int, uses: int, dependencies: int, engine: str) -> int:
    """Memory that an engine (``compiled`` or ``simpy``) takes beside the task graph."""
    return _weighted(_ENGINES[engine], tasks, uses, dependencies)


def _weighted(cost: tuple[int, int, int], *counts: int) -> int:
    return sum(each * count for each, count in zip(cost, counts, strict=True))


def check_replay_memory(needed_bytes: int, what: str) -> None:
    """Refuse what does not fit.

    Args:
        needed_bytes: The estimate.
        what: The subject of the message, such as ``replaying 5 tasks``.

    Raises:
        InfeasiblePlanError: The estimate exceeds the memory that is free now.
    """
    free_bytes = available_bytes()
    if needed_bytes > free_bytes:
        raise InfeasiblePlanError(
            f"{what} would take about {needed_bytes / GIB:.3g} GiB of memory, and {free_bytes / GIB:.3g} GiB are free"
        )


def available_bytes() -> int:
    """Memory that this process may still take: of the machine, of its control group, of its own limit."""
    return min(_machine_bytes(), _group_bytes(), _own_bytes())


def _machine_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux: all there is, for want of what is free
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group_bytes() -> int:
    """What the control group (version 2, as containers see it) leaves."""
    group = Path("/sys/fs/cgroup")
    try:
        most = (group / "memory.max").read_text().strip()
        return int(most) - int((group / "memory.current").read_text()) if most != "max" else 2**62
    except (OSError, ValueError):
        return 2**62


def _own_bytes() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return 2**62
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return soft
    return soft - pages * os.sysconf("SC_PAGE_SIZE")
