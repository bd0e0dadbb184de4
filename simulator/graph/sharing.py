"""How activities share resources: weighted max-min fairness within priority classes.

This is the clear solver, the reference of the compiled one.
"""

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Floats, Ints

__all__ = ["TOLERANCE", "alone_rates", "max_min_rates"]


TOLERANCE = 1e-12
"""Relative difference below which two times, or two levels, are one: a thousand times the rounding of
one step, and a thousand times finer than what is promised of the results."""


def alone_rates(*, capacity: Floats, flow: Ints, resource: Ints, weight: Floats, rate_limit: Floats) -> Floats:
    """Rate of each flow alone in the world: its limit or its tightest resource; 1 for a flow that uses nothing.

    Args:
        capacity: Shape (R,).
        flow, resource, weight: Shape (U,), one entry a use: ``flow`` uses ``weight`` of ``resource``
            per unit of its rate.
        rate_limit: Shape (F,).

    Returns:
        Units of work a second, shape (F,).
    """
    rate = rate_limit.copy()
    np.minimum.at(rate, flow, capacity[resource] / weight)
    unbound = np.bincount(flow, minlength=len(rate)) == 0
    rate[unbound] = np.minimum(rate[unbound], 1.0)
    return rate


def max_min_rates(
    *, capacity: Floats, flow: Ints, resource: Ints, weight: Floats, rate_limit: Floats, priority: Ints
) -> Floats:
    """Rates by progressive filling: all rise together, who meets a limit or a full resource stops there.

    Higher priority classes are filled first; lower ones share what is left, which may be nothing.

    Args:
        capacity, flow, resource, weight: As in ``alone_rates``.
        rate_limit: Shape (F,), most rate of each flow, finite where a flow uses nothing.
        priority: Shape (F,), higher is served first.

    Returns:
        Units of work a second, shape (F,).

    Source:
        Bertsekas and Gallager, "Data Networks", 2nd ed., Sec. 6.5.2.
    """
    used_resources, resource = np.unique(resource, return_inverse=True)
    capacity = capacity[used_resources]
    rate = np.zeros(len(rate_limit))
    for level_class in np.unique(priority)[::-1]:
        left = capacity - np.bincount(resource, weight * rate[flow], minlength=len(capacity))
        left[left <= TOLERANCE * capacity] = 0.0  # what rounding leaves of a full resource
        _fill(rate, priority == level_class, left, flow=flow, resource=resource, weight=weight, limit=rate_limit)
    return rate


def _fill(
    rate: Floats,
    rising: NDArray[np.bool_],
    left: Floats,
    *,
    flow: Ints,
    resource: Ints,
    weight: Floats,
    limit: Floats,
) -> None:
    """Fill ``left`` with the ``rising`` flows of one class; writes their ``rate``."""
    ours = rising[flow]
    flow, resource, weight = flow[ours], resource[ours], weight[ours]
    while rising.any():
        open_weight = np.bincount(resource, weight * rising[flow], minlength=len(left))
        free = left - np.bincount(resource, weight * rate[flow], minlength=len(left))
        full_at = np.full(len(left), np.inf)
        np.divide(np.maximum(free, 0.0), open_weight, out=full_at, where=open_weight > 0)
        stops_at = limit.copy()
        np.minimum.at(stops_at, flow, full_at[resource])
        stops = rising & (stops_at <= stops_at[rising].min() * (1 + TOLERANCE))
        rate[stops] = stops_at[stops]
        rising = rising & ~stops
