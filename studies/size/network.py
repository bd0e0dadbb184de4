"""The slowest links of a class that cost less than a share of the speed."""

from groundwork.errors import ConfigError
from groundwork.progress import Progress
from groundwork.suggestions import did_you_mean
from hwprofiles.catalogue.cluster_catalogue import cluster_with, load_cluster
from planner.expected.likely_times import likely_ratio
from studies.size.boundary import find_boundary
from studies.size.size_answer import CurvePoint, SizeAnswer
from studies.size.sized_point import SizedCluster, SizedPoint, Subject, sized_point
from studies.size.tried_points import TriedPoints, best_so_far, explained, scan_notes

_STEP = 1.05
"""Ratio of the bandwidths of neighbouring candidates."""
_CANDIDATES = 160
"""Candidates, down to 1/2,300 of today's bandwidth."""


def slowest_network(
    subject: Subject, cluster: str, *, link: str, loss: float, progress: Progress | None = None
) -> SizeAnswer:
    """Find the slowest links of a class that cost at most a share of the samples a second.

    Args:
        subject: Network, batch and strategies, planned anew for every bandwidth.
        cluster: Cluster, as for ``load_cluster``.
        link: Class of links; latencies stay as they are.
        loss: Share in (0, 1) that may be lost, against the links as they are.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: The cluster has no such class, ``loss`` is no such share, or there is no plan today.
        Interrupted: After Ctrl-C, with the answer that the points tried give; without any, KeyboardInterrupt.
    """
    if not 0 < loss < 1:
        raise ConfigError(f"loss must be > 0 and < 1, which is 100 %, got {loss:g} ({100 * loss:g} %)")
    speed = _bandwidth(cluster, link)
    today = sized_point(subject, _slower(cluster, link, 0))
    if today.refusal:
        raise ConfigError(today.refusal)

    def make(at: int) -> CurvePoint:
        point = sized_point(subject, _slower(cluster, link, at)) if at else today
        lost, likely = 1 - today.expected_s / point.expected_s, _likely_loss(today, point)
        surely = likely is not None and likely[1] <= loss
        return CurvePoint(
            x=speed * _STEP**-at, point=point, holds=lost <= loss, surely=surely, quantity=lost, likely=likely
        )

    tried = TriedPoints(make, f"{link} slower, step", progress)

    def answer(*notes: str) -> SizeAnswer:
        hold, fail = tried.parted(holds=False)
        sure = [each for each in tried.curve() if each.surely]
        lost = f"{100 * loss:.3g} %"
        return explained(
            SizeAnswer(
                question=f"slowest {link} of {cluster} that loses at most {lost} of the samples/s of {subject.model}",
                axis="bytes/s",
                measure="loss",
                limit=loss,
                curve=tried.curve(),
                best=hold[-1],
                sure=sure[-1] if sure else None,
                failing=fail[:2],
                notes=(*notes, f"latencies of {link} stay as they are"),
            )
        )

    with best_so_far(tried.curve, answer):
        found = find_boundary(_CANDIDATES, lambda at: -tried.quantity(at), lambda at: not tried[at].holds, neighbours=1)
    return answer(*scan_notes(found))


def _bandwidth(cluster: str, link: str) -> float:
    """Return the bandwidth of a class of links in bytes/s.

    Raises:
        ConfigError: The cluster has no such class; the message lists those that it has.
    """
    links = load_cluster(cluster).links
    speeds = [each.bandwidth_bytes_per_s for each in links if each.link_class == link]
    if not speeds:
        known = tuple(dict.fromkeys(each.link_class for each in links))
        hint = did_you_mean(link, known)
        raise ConfigError(f"link must be a class of links of {cluster}, one of {', '.join(known)}, got {link!r}{hint}")
    return max(speeds)


def _slower(cluster: str, link: str, steps: int) -> SizedCluster:
    """Return the cluster with slower links; a factor of its own, whose place the new one takes, is part of that."""
    factor = f"link.{link}.bandwidth_factor"
    own = _bandwidth(cluster, link) / _bandwidth(cluster_with(cluster, {factor: "1"}), link)
    spec = cluster_with(cluster, {factor: f"{own * _STEP**-steps:.9g}"}) if steps else cluster
    return SizedCluster(spec=spec, devices=len(load_cluster(cluster).devices))


def _likely_loss(today: SizedPoint, slower: SizedPoint) -> tuple[float, float] | None:
    """Return the interval of the loss; both compute the same, and err alike in that."""
    if today.parts is None or slower.parts is None:
        return None
    if slower is today:
        return 0.0, 0.0
    same = (today.strategy, today.plan and today.plan.configurations) == (
        slower.strategy,
        slower.plan and slower.plan.configurations,
    )
    ratio = likely_ratio(slower.parts, today.parts, same_kernels=same)
    return None if ratio is None else (1 - 1 / ratio[0], 1 - 1 / ratio[1])
