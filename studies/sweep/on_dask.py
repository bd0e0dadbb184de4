"""Computation of points on a Dask cluster, with the same file, store and results as on one machine."""

from collections.abc import Generator, Iterable
from contextlib import ExitStack
from itertools import islice
from multiprocessing import resource_tracker
from typing import Any

from groundwork.errors import ConfigError
from groundwork.requests import positive_integer
from studies.sweep.evaluate_point import PointResult, evaluate_point
from studies.sweep.point import SweepPoint
from studies.sweep.workers import signals_held

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
