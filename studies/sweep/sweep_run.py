"""Run of a sweep: points that are not stored yet are computed, and each result is stored at once."""

import os
from contextlib import closing
from dataclasses import dataclass

from groundwork.errors import ConfigError
from groundwork.progress import Progress, keeping
from simulator.graph.memory_need import check_free_memory
from studies.sweep.on_dask import compute_on_dask
from studies.sweep.store import Store
from studies.sweep.sweep_file import Sweep
from studies.sweep.workers import compute_locally

_WORKER_BYTES = 70 * 2**20
"""Memory of a process of a sweep of its own, before it plans: of 76 MiB measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOutcome:
    """Numbers of points of one run of a sweep."""

    points: int
    """Points of the sweep."""
    stored: int
    """Points with a stored result before the run."""
    computed: int
    """Points that the run computed; those refused and failed are among them."""
    refused: int
    failed: int
    left: int
    """Points without a result: 0 but after an interrupt."""


def run_sweep(
    sweep: Sweep,
    store: Store,
    *,
    processes: int = 0,
    dask: str = "",
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> SweepOutcome:
    """Compute the points of a sweep that a store lacks.

    Args:
        sweep: The points.
        store: Store with earlier results, to which the new ones are added.
        processes: Processes on this machine; 0 for one for each core that this process may use.
        dask: Address of a Dask scheduler that is used instead, or ``local:N``.
        retry_failed: Compute points again whose computation broke off.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: ``processes`` < 0, the store is locked, or Dask cannot be used.
        InfeasiblePlanError: So many processes do not fit in memory.
        Interrupted: After Ctrl-C, with the numbers of points so far, which are stored.
    """
    if processes < 0:
        raise ConfigError(f"processes must be >= 0, got {processes}")
    digests = {point.digest: point for point in sweep.points}
    if retry_failed:
        store.forget(store.failed() & set(digests))
    known = store.known(digests)
    missing = [point for digest, point in digests.items() if digest not in known]
    counts = {"ok": 0, "refused": 0, "failed": 0}

    def outcome() -> SweepOutcome:
        left = len(digests) - len(store.known(digests))
        return SweepOutcome(
            points=len(digests),
            stored=len(known),
            computed=len(missing) - left,
            refused=counts["refused"],
            failed=counts["failed"],
            left=left,
        )

    if missing:
        if dask:
            results = compute_on_dask(missing, address=dask)
        else:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            count = min(processes or cores, len(missing))
            check_free_memory(count * _WORKER_BYTES, f"a sweep by {count:,} processes")
            results = compute_locally(missing, processes=count)
        with keeping(outcome), closing(results):
            for done, (point, result) in enumerate(results, 1):
                store.add(point, result)
                counts[result.status] += 1
                if progress:
                    progress(f"{sweep.name}: {len(known) + done:,} of {len(digests):,} points", done, len(missing))
    return outcome()
