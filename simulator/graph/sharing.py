"""Sharing of resources among activities: weighted max-min fairness within priority classes.

This is the clear solver, the reference for the compiled one in ``simulator.compiled``.
"""

import numpy as np

from groundwork.array_types import Bools, Floats, Ints

TOLERANCE = 1e-12
"""Relative difference below which two times, or two levels, count as equal: a thousand times the rounding error of
one step, and a thousandth of the error that is promised for the results."""


def alone_rates(*, capacity: Floats, flow: Ints, resource: Ints, weight: Floats, rate_limit: Floats) -> Floats:
    """Return the rate that each flow would have alone: its limit or that of its tightest resource.

    A flow that uses no resource has rate 1 at most.

    Args:
        capacity: Units of work a second of each resource, shape (R,).
        flow: Flow of each use, shape (U,).
        resource: Resource of each use, shape (U,).
        weight: Amount of the resource that the flow uses per unit of its rate, shape (U,).
        rate_limit: Largest rate of each flow, shape (F,).

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
    """Return max-min fair rates by progressive filling.

    All rates rise together; a flow that reaches its limit or a full resource stops there.  Higher priority classes
    are filled first; lower ones share what is left, which may be nothing.

    Args:
        capacity: As in ``alone_rates``.
        flow: As in ``alone_rates``.
        resource: As in ``alone_rates``.
        weight: As in ``alone_rates``.
        rate_limit: Largest rate of each flow, finite where a flow uses nothing, shape (F,).
        priority: Priority of each flow, higher is served first, shape (F,).

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
    rising: Bools,
    left: Floats,
    *,
    flow: Ints,
    resource: Ints,
    weight: Floats,
    limit: Floats,
) -> None:
    """Fill the capacity that is left with the flows of one priority class.

    Args:
        rate: Rates of all flows; those of the class are written, shape (F,).
        rising: Flags of the flows of the class, shape (F,).
        left: Capacity that is left of each resource, shape (R,).
        flow: As in ``alone_rates``.
        resource: As in ``alone_rates``.
        weight: As in ``alone_rates``.
        limit: Largest rate of each flow, shape (F,).
    """
    ours = rising[flow]
    flow, resource, weight = flow[ours], resource[ours], weight[ours]
    while rising.any():
        open_weight = np.bincount(resource, weight * rising[flow], minlength=len(left))
        free = left - np.bincount(resource, weight * rate[flow], minlength=len(left))
        full_at = np.full(len(left), np.inf)  # common rate of the rising flows at which each resource is full
        np.divide(np.maximum(free, 0.0), open_weight, out=full_at, where=open_weight > 0)
        stops_at = limit.copy()
        np.minimum.at(stops_at, flow, full_at[resource])
        stops = rising & (stops_at <= stops_at[rising].min() * (1 + TOLERANCE))
        rate[stops] = stops_at[stops]
        rising = rising & ~stops
