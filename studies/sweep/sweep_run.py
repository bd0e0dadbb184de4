"""Run of a sweep: points that are not stored yet are computed, and each result is stored at once."""

import os
from collections.abc import Generator, Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from multiprocessing import resource_tracker
from typing import Any

from groundwork.errors import ConfigError
from groundwork.progress import Progress, keeping
from groundwork.requests import positive_integer
from simulator.graph.memory_need import check_free_memory
from studies.sweep.evaluate_point import PointResult, evaluate_point
from studies.sweep.point import SweepPoint
from studies.sweep.store import Store
from studies.sweep.sweep_file import Sweep
from studies.sweep.workers import compute_locally, signals_held

DASK_WAIT_S = 10.0
"""Longest wait for a scheduler that does not respond."""
_AHEAD = 4
"""Points sent to each worker in advance."""


def compute_on_dask(points: Iterable[SweepPoint], *, address: str) -> Generator[tuple[SweepPoint, PointResult]]:
    """Compute points on the workers of a Dask cluster, and yield each result as soon as it is computed.

    Points of a worker that dies are computed by others.  Workers need this package, in this version.

    Args:
        points: Points in the order in which they begin.
        address: Address of the scheduler, such as ``tcp://host:8786``; or ``local:N`` for N workers on this machine.

    Raises:
        ConfigError: Dask is not installed, ``address`` has neither form, or no scheduler responds in 10 s.
    """
    try:
        from distributed import as_completed
    except ImportError:
        raise ConfigError("dask is not installed: pip install 'orrery-training[dask]'") from None
    with ExitStack() as stack:
        client = _client(address, stack)
        workers = max(len(client.scheduler_info(n_workers=-1)["workers"]), 1)
        source, point_of = iter(points), {}

        def submit(point: SweepPoint) -> Any:
            future = client.submit(evaluate_point, point, pure=False)
            point_of[future.key] = point
            return future

        queue = as_completed([submit(point) for point in islice(source, workers * _AHEAD)])
        for future in queue:
            yield point_of.pop(future.key), _result(future)
            for point in islice(source, 1):
                queue.add(submit(point))


def _result(future: Any) -> PointResult:
    """Return the result of a point, or the error of its worker as the result."""
    try:
        result: PointResult = future.result()
    except Exception as error:  # workers that died one after another, or could not load the package
        return PointResult(status="failed", error=f"{type(error).__name__}: {' '.join(str(error).split())}")
    return result


def _client(address: str, stack: ExitStack) -> Any:
    """Return a client of a scheduler, which the stack closes."""
    from distributed import Client, LocalCluster

    kind, _, count = address.partition(":")
    if kind == "local":
        workers = positive_integer(count)
        if workers is None:
            raise ConfigError(f"dask must be the scheduler's address or local:N with N >= 1, got {address!r}")
        with signals_held():  # Python's own tracker, which ignores the others, would not outlive SIGHUP to the group
            resource_tracker.ensure_running()
        cluster = LocalCluster(
            host="127.0.0.1", n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50
        )
        return stack.enter_context(Client(stack.enter_context(cluster)))
    try:
        return stack.enter_context(Client(address, timeout=DASK_WAIT_S))
    except (OSError, ValueError) as error:  # a time-out is an OSError
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"dask scheduler {address!r} cannot be reached (waited {DASK_WAIT_S:g} s): {reason}"
        ) from None


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
