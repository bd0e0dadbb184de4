"""Estimates of the memory that a replay takes, so that one that cannot fit is refused before it starts."""

import math
import os
import resource
from pathlib import Path

import psutil

from groundwork.errors import InfeasiblePlanError
from groundwork.units import GIB

MEMORY_LIMIT = "ORRERY_MAX_MEMORY_GIB"
"""Variable of the environment, which other processes of a command inherit, with the GiB that a replay may take."""
_UNASKED_GIB = 4

_GRAPH = (80, 16, 8)
"""Bytes for a task, a use of a resource, and a dependency: the arrays of ``TaskGraph``."""
_ENGINES = {"compiled": (200, 40, 16), "simpy": (1_500, 60, 300)}
"""Bytes of the same for the state of each engine: growth of the resident memory of whole runs, rounded up."""
_UNLIMITED = 2**62


def graph_bytes(*, tasks: int, uses: int, dependencies: int) -> int:
    """Return the memory of a task graph, from its numbers of tasks, of uses of resources, and of dependencies."""
    return _weighted(_GRAPH, tasks, uses, dependencies)


def engine_bytes(*, tasks: int, uses: int, dependencies: int, engine: str) -> int:
    """Return the memory that an engine (``compiled`` or ``simpy``) takes in addition to the task graph."""
    return _weighted(_ENGINES[engine], tasks, uses, dependencies)


def _weighted(cost: tuple[int, int, int], *counts: int) -> int:
    """Return the sum of costs times counts."""
    return sum(each * count for each, count in zip(cost, counts, strict=True))


def check_replay_memory(needed_bytes: int, subject: str, *, takes_s: float = 0.0) -> None:
    """Refuse a replay, or what prepares one, that needs more memory than is free, or than may be taken unasked.

    Args:
        needed_bytes: Estimate of the memory that the work takes.
        subject: Subject of the message, such as ``replaying 5 tasks``.
        takes_s: Estimate of the processor time that the work takes, to be said with the memory; 0: it is not known.

    Raises:
        InfeasiblePlanError: The estimate exceeds the memory that can be allocated now, or what
            ``orrery --max-memory-gib`` allows, 4 GiB unless it is given.
    """
    check_free_memory(needed_bytes, subject)
    limit_gib = float(os.environ.get(MEMORY_LIMIT, _UNASKED_GIB))
    if needed_bytes > limit_gib * GIB:
        time = f" and {takes_s:,.0f} s of a processor" if takes_s else ""
        raise InfeasiblePlanError(
            f"{subject} would take about {needed_bytes / GIB:.3g} GiB of memory{time}, and may take {limit_gib:g} GiB: "
            f"orrery --max-memory-gib {math.ceil(needed_bytes / GIB)} ... allows it"
        )


def check_free_memory(needed_bytes: int, subject: str, *, way_out: str = "") -> None:
    """Refuse work that needs more memory than this process may still allocate.

    Args:
        needed_bytes: Estimate of the memory that the work takes.
        subject: Subject of the message, such as ``5 processes``.
        way_out: What takes less memory; empty where nothing is known.

    Raises:
        InfeasiblePlanError: The estimate exceeds the memory that can be allocated now.
    """
    free_bytes = allocatable_bytes()
    if needed_bytes > free_bytes:
        raise InfeasiblePlanError(
            f"{subject} would take about {needed_bytes / GIB:.3g} GiB of memory, "
            f"and {free_bytes / GIB:.3g} GiB are free" + (f": {way_out}" if way_out else "")
        )


def allocatable_bytes() -> int:
    """Return the memory of the host that this process may still allocate without swapping.

    It is the least of what the machine has available, what the control group leaves, and what the limit of the
    process's own address space (``ulimit -v``) leaves.
    """
    return min(psutil.virtual_memory().available, _group_bytes(), _address_space_bytes())


def _group_bytes() -> int:
    """Return the memory that the control group leaves (version 2, as containers see it)."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        return int(limit) - int((group / "memory.current").read_text()) if limit != "max" else _UNLIMITED
    except (OSError, ValueError):  # another version, or no control groups
        return _UNLIMITED


def _address_space_bytes() -> int:
    """Return what the limit of the address space of this process leaves."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft - psutil.Process().memory_info().vms
