"""The fewest devices that train within a deadline."""

from dataclasses import replace

from groundwork.progress import Progress
from studies.size.boundary import find_boundary
from studies.size.size_answer import CurvePoint, SizeAnswer
from studies.size.sized_point import SizedCluster, Subject, cluster_sizes, sized_point
from studies.size.training import TrainingRun, training_cost
from studies.size.tried_points import (
    TriedPoints,
    best_so_far,
    check_positive,
    explained,
    hours_text,
    run_text,
    scan_notes,
)


def trained_point(subject: Subject, sized: SizedCluster, training: TrainingRun, price: float | None) -> CurvePoint:
    """Return a size of a cluster with what training takes on it; the rule is left to the question."""
    point = sized_point(subject, sized)
    cost = training_cost(point, training, price=price)
    return CurvePoint(x=point.devices, point=point, holds=False, cost=cost, quantity=cost.total_s, likely=cost.likely_s)


def fewest_devices(
    subject: Subject,
    cluster: str,
    training: TrainingRun,
    *,
    within_s: float,
    most_devices: int = 256,
    price: float | None = None,
    progress: Progress | None = None,
) -> SizeAnswer:
    """Find the fewest devices that train within a deadline, by the expected time and at its slow end.

    Args:
        subject: Network, batch and strategies.
        cluster: Cluster, whose number of nodes is varied (``cluster_sizes``).
        training: The run.
        within_s: The deadline.
        most_devices: Largest size that is tried.
        price: Money for an hour of one device.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: The deadline is not positive, or the model, the cluster or an option breaks a rule.
        Interrupted: After Ctrl-C, with the answer that the points tried give; without a plan, KeyboardInterrupt.
    """
    check_positive("within_s", within_s)
    sizes = cluster_sizes(cluster, most_devices=most_devices, batch=subject.batch)

    def make(at: int) -> CurvePoint:
        row = trained_point(subject, sizes[at], training, price)
        return replace(row, holds=row.total_s <= within_s, surely=row.latest_s <= within_s)

    tried = TriedPoints(make, "size", progress)

    def answer(notes: tuple[str, ...] = ()) -> SizeAnswer:
        fail, rest = tried.parted(holds=True)
        return explained(
            SizeAnswer(
                question=f"fewest devices of {cluster} that train {run_text(subject, training)} within "
                f"{hours_text(within_s)}",
                axis="devices",
                measure="time",
                limit=within_s,
                curve=tried.curve(),
                best=next(iter(rest), None),
                sure=next((each for each in rest if each.surely), None),
                failing=fail[:-3:-1],
                notes=notes,
            )
        )

    with best_so_far(tried.curve, answer):
        found = find_boundary(len(sizes), tried.quantity, lambda at: tried[at].holds)
        if found.first is not None:  # the same question at the slow end of the intervals
            find_boundary(len(sizes), tried.quantity, lambda at: tried[at].surely, neighbours=0)
    return answer(scan_notes(found))
