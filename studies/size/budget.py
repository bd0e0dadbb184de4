"""The cluster that trains fastest for a budget, or cheapest where there is a deadline too."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

from groundwork.errors import ConfigError
from groundwork.progress import Progress
from studies.size.boundary import Boundary, find_boundary
from studies.size.deadline import trained_point
from studies.size.size_answer import CurvePoint, SizeAnswer
from studies.size.sized_point import Subject, cluster_sizes
from studies.size.training import TrainingRun
from studies.size.tried_points import (
    TriedPoints,
    best_so_far,
    check_positive,
    explained,
    hours_text,
    run_text,
    scan_notes,
)


class Budget:
    """An amount of money or of device hours that a run may cost, and prices by cluster."""

    def __init__(self, *, money: float | None, device_hours: float | None, prices: Mapping[str, float]) -> None:
        """Check a budget.

        Raises:
            ConfigError: Not exactly one amount is given, or it is not positive.
        """
        if (money is None) == (device_hours is None):
            which = "neither" if money is None else "both"
            raise ConfigError(f"budget must be either money or device hours, got {which}")
        self.is_money, self.limit = money is not None, money if money is not None else device_hours or 0.0
        self.prices = prices
        check_positive("money" if self.is_money else "device_hours", self.limit)

    def price(self, cluster: str) -> float | None:
        """Return the price of an hour of a device of a cluster.

        Raises:
            ConfigError: There is none, and the budget is money.
        """
        price = self.prices.get(cluster, self.prices.get(""))
        if price is None and self.is_money:
            raise ConfigError(f"price of {cluster} must be given where the budget is money, got none")
        return price

    @property
    def text(self) -> str:
        """The amount in words."""
        return f"{self.limit:,g} {'units of money' if self.is_money else 'device hours'}"


def best_for_budget(
    subject: Subject,
    clusters: Sequence[str],
    training: TrainingRun,
    budget: Budget,
    *,
    within_s: float | None = None,
    most_devices: int = 256,
    progress: Progress | None = None,
) -> SizeAnswer:
    """Find the cluster and size that train fastest for a budget; with a deadline the cheapest that keeps both.

    Raises:
        ConfigError: The deadline is not positive, a price is missing, or the model, a cluster or an option breaks a
            rule.
        Interrupted: After Ctrl-C, with the answer that the points tried give; without a plan, KeyboardInterrupt.
    """
    if within_s is not None:
        check_positive("within_s", within_s)
    searches, notes = list[TriedPoints](), dict[str, None]()

    def curve() -> list[CurvePoint]:
        return [row for each in searches for row in each.curve()]

    def answer() -> SizeAnswer:
        rows, order = curve(), attrgetter("quantity" if within_s is not None else "total_s")
        best = min((each for each in rows if each.holds), key=order, default=None)
        late = f" and within {hours_text(within_s)}" if within_s is not None else ""
        kind, run = "cheapest" if late else "fastest", run_text(subject, training)
        return explained(
            SizeAnswer(
                question=f"{kind} cluster that trains {run} for {budget.text}{late}",
                axis="devices",
                measure="money" if budget.is_money else "device hours",
                limit=budget.limit,
                curve=tuple(rows),
                best=best,
                sure=min((each for each in rows if each.surely), key=order, default=None),
                failing=_nearest_failing(rows, best),
                notes=tuple(notes),
            )
        )

    with best_so_far(curve, answer):
        for cluster in clusters:
            notes |= _try_sizes(searches, subject, cluster, training, budget, within_s, most_devices, progress)
    return answer()


def _try_sizes(
    searches: list[TriedPoints],
    subject: Subject,
    cluster: str,
    training: TrainingRun,
    budget: Budget,
    within_s: float | None,
    most_devices: int,
    progress: Progress | None,
) -> dict[str, None]:
    """Add the sizes of a cluster to the searches, and return notes; other arguments as for ``best_for_budget``."""
    notes = dict[str, None]()
    price = budget.price(cluster)
    sizes = cluster_sizes(cluster, most_devices=most_devices, batch=subject.batch)

    def make(at: int) -> CurvePoint:
        return _judged(trained_point(subject, sizes[at], training, price), budget, within_s)

    tried = TriedPoints(make, f"{cluster}, size", progress)
    searches.append(tried)
    if within_s is None:  # larger clusters cost more: the last that is not over the budget is the fastest
        found = _first_over(tried, len(sizes), budget.limit)
        if found.first is None and tried[len(sizes) - 1].holds:
            most = f"{sizes[-1].devices:,} devices of {cluster}"
            notes[f"{most}, the most that are tried, are within the budget"] = None
    else:  # larger clusters cost more, so the first that is in time is the cheapest
        found = find_boundary(len(sizes), lambda at: tried[at].total_s, lambda at: tried[at].total_s <= within_s)
        find_boundary(len(sizes), lambda at: tried[at].total_s, lambda at: tried[at].latest_s <= within_s)
    return notes | dict.fromkeys(scan_notes(found))


def _judged(row: CurvePoint, budget: Budget, within_s: float | None) -> CurvePoint:
    """Return a size with what it costs, and whether that is within the budget and the deadline."""
    cost = row.cost
    assert cost is not None
    spent = cost.money if budget.is_money and cost.money is not None else cost.device_hours
    likely, most_s = cost.interval_of(spent), math.inf if within_s is None else within_s
    holds = spent <= budget.limit and row.total_s <= most_s
    surely = likely is not None and likely[1] <= budget.limit and row.latest_s <= most_s
    return replace(row, quantity=spent, likely=likely, holds=holds, surely=surely)


def _first_over(tried: TriedPoints, count: int, limit: float) -> Boundary:
    """Return the boundary to sizes over the limit, from the first on that has a plan: smaller ones lack memory.

    Where no size has a plan the boundary is that between sizes without and with one.
    """
    planned = find_boundary(count, partial(_is_refused, tried), lambda at: not _is_refused(tried, at), neighbours=0)
    if planned.first is None:
        return planned
    start = planned.first
    return find_boundary(
        count - start,
        lambda at: -tried.quantity(start + at),  # which falls, as larger clusters cost more
        lambda at: tried.quantity(start + at) > limit and not _is_refused(tried, start + at),
    )


def _is_refused(tried: TriedPoints, at: int) -> bool:
    """Return whether a size has no plan, so that its cost is infinite without its being too large."""
    return bool(tried[at].point.refusal)


def _nearest_failing(curve: Sequence[CurvePoint], best: CurvePoint | None) -> tuple[CurvePoint, ...]:
    """Return the two points that fail next to the best one, on its cluster; without a best one the two cheapest."""
    failing = [row for row in curve if not row.holds]
    if best is None:
        return tuple(sorted(failing, key=attrgetter("quantity"))[:2])
    name = best.point.sized.base
    same = [row for row in failing if row.point.sized.base == name]
    return tuple(sorted(same, key=lambda row: abs(row.x - best.x))[:2])
