"""Clusters as they are: the time to train on one, and the best of several offers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from groundwork.errors import ConfigError
from groundwork.progress import Progress
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from studies.size.deadline import trained_point
from studies.size.size_answer import CurvePoint, SizeAnswer
from studies.size.sized_point import SizedCluster, Subject
from studies.size.training import TrainingRun
from studies.size.tried_points import best_so_far, check_positive, explained, hours_text, run_text


def best_offer(
    subject: Subject,
    clusters: Sequence[str],
    training: TrainingRun,
    *,
    prices: Mapping[str, float],
    by: str = "time",
    within_s: float | None = None,
    progress: Progress | None = None,
) -> SizeAnswer:
    """Compare clusters as they are: the one that trains fastest, or cheapest.

    Returns:
        The answer, whose ``failing`` are the next two offers.

    Raises:
        ConfigError: There is no offer, no offer has a plan, a price is missing, or the deadline is not positive.
        Interrupted: After Ctrl-C, with the answer that the points tried give; without a plan, KeyboardInterrupt.
    """
    curve, offers = list[CurvePoint](), list(dict.fromkeys(clusters))
    if not offers:
        raise ConfigError("cluster must be given at least once, got none")
    if within_s is not None:
        check_positive("within_s", within_s)

    def answer() -> SizeAnswer:
        order = sorted(curve, key=lambda row: (not row.holds, row.quantity))
        best = order[0] if order[0].holds else None
        late = f" within {hours_text(within_s)}" if within_s is not None else ""
        adverb = "cheapest" if by == "money" else "fastest"
        run = run_text(subject, training)
        return explained(
            SizeAnswer(
                question=f"{adverb} of {len(offers)} offers for {run}{late}"
                if len(offers) > 1
                else f"time to train {run} on {offers[0]}{late}",
                axis="offer",
                measure="money" if by == "money" else "time",
                limit=within_s if by == "time" else None,
                curve=tuple(curve),
                best=best,
                sure=best if best and best.surely and not _near(best, order[1:]) else None,
                failing=tuple(order[1:3]) if best else tuple(order[:2]),
                notes=_undecided(best, order[1:]),
            )
        )

    with best_so_far(lambda: curve, answer):
        for done, cluster in enumerate(offers):
            if progress:
                progress(cluster, done, len(offers))
            price = prices.get(cluster, prices.get(""))
            if price is None and by == "money":
                raise ConfigError(f"price of {cluster} must be given where offers are compared by money, got none")
            sized = SizedCluster(spec=cluster, devices=len(load_cluster(cluster).devices))
            curve.append(_judged(trained_point(subject, sized, training, price), by, within_s, done))
        if all(row.point.refusal for row in curve):
            raise ConfigError("; ".join(f"{row.point.cluster}: {row.point.refusal}" for row in curve))
    return answer()


def _judged(row: CurvePoint, by: str, within_s: float | None, at: int) -> CurvePoint:
    """Return an offer with the quantity that offers are compared by."""
    holds = not row.point.refusal and (within_s is None or row.total_s <= within_s)
    row = replace(row, x=at, holds=holds, surely=holds and (within_s is None or row.latest_s <= within_s))
    if by == "time" or row.cost is None or row.cost.money is None:
        return row
    return replace(row, quantity=row.cost.money, likely=row.cost.interval_of(row.cost.money))


def _near(best: CurvePoint, others: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return the offers whose intervals reach below the upper end of the best one's."""
    return [
        row for row in others if row.holds and (not row.likely or not best.likely or row.likely[0] <= best.likely[1])
    ]


def _undecided(best: CurvePoint | None, others: Sequence[CurvePoint]) -> tuple[str, ...]:
    """Return which offers the intervals do not tell apart from the best."""
    near = _near(best, others) if best else []
    if best is None or not near:
        return ()
    names = ", ".join(row.point.cluster for row in near)
    return (
        f"the intervals of {best.point.cluster} and {names} overlap: kernels of different devices err by themselves",
    )
