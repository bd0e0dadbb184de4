"""The largest batch of each device that fits in memory."""

from dataclasses import replace

from groundwork.progress import Progress
from groundwork.units import GIB
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import MOST_SAMPLES
from studies.size.boundary import find_boundary
from studies.size.size_answer import CurvePoint, SizeAnswer
from studies.size.sized_point import SizedCluster, Subject, sized_point
from studies.size.tried_points import TriedPoints, best_so_far, explained, scan_notes


def largest_batch(subject: Subject, cluster: str, *, progress: Progress | None = None) -> SizeAnswer:
    """Find the largest batch of each device that fits in memory.

    Raises:
        ConfigError: The model, the cluster or an option breaks a rule.
        Interrupted: After Ctrl-C, with the answer that the points tried give; without a plan, KeyboardInterrupt.
    """
    devices = load_cluster(cluster).devices
    sized = SizedCluster(spec=cluster, devices=len(devices))
    capacity = min(device.usable_bytes for device in devices)

    def make(at: int) -> CurvePoint:
        point = sized_point(replace(subject, batch=0, batch_per_device=at + 1), sized)
        fits = not point.refusal
        return CurvePoint(x=at + 1, point=point, holds=fits, surely=fits, quantity=point.peak_bytes)

    tried = TriedPoints(make, "batch of each device", progress)

    def answer(*notes: str) -> SizeAnswer:
        fit, fail = tried.parted(holds=False)
        best = fit[-1] if fit else None
        return explained(
            SizeAnswer(
                question=f"largest batch of {subject.model} that fits on {cluster} ({capacity / GIB:g} GiB a device)",
                axis="samples a device",
                measure="memory",
                limit=capacity,
                curve=tried.curve(),
                best=best,
                sure=best,
                failing=fail[:2],
                notes=(*notes, "memory is counted, not estimated: it has no interval"),
            )
        )

    with best_so_far(tried.curve, answer):
        most = MOST_SAMPLES // len(devices)
        found = find_boundary(most, lambda at: -tried.quantity(at), lambda at: not tried[at].holds, neighbours=1)
    notes = scan_notes(found)
    if found.first is None:
        notes = f"{MOST_SAMPLES:,} samples in all, the most that can be planned, fit: memory sets no limit", *notes
    return answer(*notes)
