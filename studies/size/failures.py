"""Time lost to failures, and the interval between checkpoints that makes it least.

A run of W seconds of work takes a checkpoint of C seconds after every t seconds of work.  Failures come at random, at a
mean time M apart (a Poisson process); each costs a restart of R seconds and all work since the last checkpoint, and may
strike during checkpoints and restarts too.  Then the expected time is (Daly, Eq. 13)

    T(t) = M exp(R / M) (exp((t + C) / M) - 1) W / t

and is least where (1 - t / M) exp((t + C) / M) = 1, that is at t = M (1 + w(-exp(-1 - C / M))) with Lambert's w.
For C much shorter than M that is Young's sqrt(2 C M).

Sources:
    Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (9), 1974.
    Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer
    Systems 22 (3), 2006, Sec. 3.
"""

import math
from dataclasses import dataclass

from groundwork.errors import ConfigError

_LARGEST_EXPONENT = 700.0
"""Above it the exponential function overflows: no such run would ever end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """How often nodes fail, and what that costs."""

    node_mtbf_s: float
    """Mean time between failures of one node; of n nodes it is an n-th."""
    checkpoint_s: float
    """Time in which a checkpoint holds up the training."""
    restart_s: float
    """Time from a failure until the training goes on from the last checkpoint."""

    def __post_init__(self) -> None:
        for name, low in (("node_mtbf_s", 1e-3), ("checkpoint_s", 0.0), ("restart_s", 0.0)):
            value = getattr(self, name)
            if not low <= value < math.inf:
                raise ConfigError(f"{name} must be finite and >= {low:g} s, got {value!r}")

    def mtbf_s(self, nodes: int) -> float:
        """Return the mean time between failures of a cluster of so many nodes."""
        return self.node_mtbf_s / nodes


def optimal_interval_s(checkpoint_s: float, mtbf_s: float) -> float:
    """Return the seconds of work between checkpoints for which the expected time is least.

    Args:
        checkpoint_s: Time of a checkpoint; at 0 the interval is 0 too.
        mtbf_s: Mean time between failures of the whole cluster.

    Source:
        Daly 2006, Sec. 3: the root of the derivative, here exactly by Lambert's function.
    """
    from scipy.special import lambertw

    small = checkpoint_s / mtbf_s
    if small < 1e-6:  # next to the branch point, where rounding takes all digits, the series of Lambert's function
        root = math.sqrt(-2 * math.expm1(-small))
        return mtbf_s * (root - root**2 / 3 + 11 * root**3 / 72)
    return mtbf_s * (1 + float(lambertw(-math.exp(-1 - small)).real))


def expected_time_s(work_s: float, interval_s: float, failures: Failures, nodes: int) -> float:
    """Return the expected time of a run with checkpoints; infinite where it would never end.

    Args:
        work_s: Time of the run without checkpoints and failures.
        interval_s: Seconds of work between checkpoints, > 0; a run that ends before the first one takes none.
        failures: Their rate and costs.
        nodes: Nodes of the cluster.

    Source:
        Daly 2006, Eq. 13.
    """
    mtbf_s = failures.mtbf_s(nodes)
    checkpoint_s = failures.checkpoint_s
    if 0 < work_s <= interval_s:
        interval_s, checkpoint_s = work_s, 0.0
    if (interval_s + checkpoint_s + failures.restart_s) / mtbf_s > _LARGEST_EXPONENT:
        return math.inf
    if interval_s <= 0:  # checkpoints that cost nothing, at all times: only restarts are left
        return work_s * math.exp(failures.restart_s / mtbf_s)
    tries = math.expm1((interval_s + checkpoint_s) / mtbf_s)
    return mtbf_s * math.exp(failures.restart_s / mtbf_s) * tries * work_s / interval_s


def least_time_s(work_s: float, failures: Failures, nodes: int) -> tuple[float, float]:
    """Return the interval between checkpoints that makes the expected time of a run least, and that time.

    The interval is infinite where the run is expected to end sooner without any checkpoint.

    Args:
        work_s: Time of the run without checkpoints and failures.
        failures: Their rate and costs.
        nodes: Nodes of the cluster.
    """
    times_s = {
        every_s: expected_time_s(work_s, every_s, failures, nodes)
        for every_s in (math.inf, optimal_interval_s(failures.checkpoint_s, failures.mtbf_s(nodes)))
        if every_s < work_s or every_s == math.inf
    }
    best_s = min(times_s, key=times_s.__getitem__)
    return best_s, times_s[best_s]
