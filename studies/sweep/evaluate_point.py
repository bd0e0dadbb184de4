"""Result of a point: its strategy priced, lowered and replayed."""

from dataclasses import asdict, dataclass, field
from functools import lru_cache
from time import perf_counter

from groundwork.errors import OrreryError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.memory.peak_memory import peak_by_kind_bytes, peak_memory_bytes
from planner.models.registry import load_model
from planner.plan.make_plan import simulated_plan
from planner.plan.plan_request import PlanRequest
from studies.sweep.point import SweepPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """Result of a point."""

    status: str
    """``ok``; ``refused``: the point breaks a rule or does not fit; ``failed``: its computation broke off."""
    values: dict[str, float] = field(default_factory=dict)
    """Seconds, bytes, samples a second; empty unless ``ok``."""
    error: str = ""
    """Reason why there are no values."""
    seconds: float = 0.0
    """Time that the computation took."""


_cluster, _model = lru_cache(maxsize=8)(load_cluster), lru_cache(maxsize=8)(load_model)


def evaluate_point(point: SweepPoint) -> PointResult:
    """Compute a point; an error becomes its result."""
    begin = perf_counter()
    try:
        values = _values(point)
    except OrreryError as error:  # in brief: advice on what fits would take longer than the point itself
        return PointResult(status="refused", error=error.brief, seconds=perf_counter() - begin)
    except Exception as error:  # one point's failure must not end the sweep
        message = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return PointResult(status="failed", error=message, seconds=perf_counter() - begin)
    return PointResult(status="ok", values=values, seconds=perf_counter() - begin)


def _request(point: SweepPoint) -> PlanRequest:
    """Return a point as a request for a plan, which has no empty names."""
    values = asdict(point)
    return PlanRequest(**{name: value for name, value in values.items() if value != "" or name.startswith("compress")})


def _values(point: SweepPoint) -> dict[str, float]:
    """Return the values of a point that can be computed."""
    cluster, request = _cluster(point.cluster), _request(point)
    planned = simulated_plan(
        _model(point.model, batch=point.batch, element_bytes=request.element_bytes), cluster, request
    )
    replayed, plan = planned.replayed, planned.plan
    shares = asdict(replayed.shares())
    del shares["device"]
    return {
        "devices": len(cluster.devices),
        "iteration_s": plan.simulated_s,
        "expected_s": replayed.expected_s,
        **dict(zip(("likely_low_s", "likely_high_s"), replayed.likely_s or (), strict=False)),
        **{name: value for name, value in asdict(planned.rates).items() if value is not None},
        "additive_s": plan.additive_s,
        **shares,
        "moved_bytes": replayed.program.moved_bytes,
        "peak_memory_bytes": float(peak_memory_bytes(replayed.program).max()),
        **{f"{kind}_memory_bytes": size for kind, size in peak_by_kind_bytes(replayed.program).items()},
        "tasks": replayed.program.size,
    }
