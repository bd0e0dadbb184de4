"""Covered resources: those that never decide when a task begins, nor at which rate it works.

A resource is covered by another one that all its users use too, if that one

* is exclusive: then it has one user at a time, which runs at the rate that it has alone; or
* leaves each of them no higher rate, and neither is exclusive: then it is full first.

The engine leaves covered resources out.  The route of a message crosses several links that no message crosses apart, so
a third of all uses goes::

    gpu0, gpu1 -> switch -> host (exclusive) -> other switch (exclusive) -> NIC -> fabric, slower than the NIC

    switch -> host          stays
    host -> other switch    covered: whoever crosses it crosses switch -> host, which serves one at a time
    other switch -> NIC     covered by NIC -> fabric
"""

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from simulator.compiled.jit import saved

_CANDIDATES = 12
"""Most resources that are considered to cover one; the routes of messages are shorter, but for collectives."""


@saved
def _find_covered(
    use_start: Ints,
    use_resource: Ints,
    use_weight: Floats,
    capacity: Floats,
    exclusive: Bools,
    candidates: Ints,
    ratio: Floats,
    seen: Ints,
) -> None:
    """Narrow the candidates of every resource down to those that cover it.

    Args:
        use_start: As of the task graph, as are those up to ``exclusive``.
        use_resource: See there.
        use_weight: See there.
        capacity: See there.
        exclusive: See there.
        candidates: Shape (R, candidates): resources that cover each one; -1 elsewhere, and everywhere at first.
        ratio: Scratch, shape (R,): seconds of the resource that a unit of work of the task at hand takes.
        seen: Scratch, shape (R,), filled with -1: last task that uses the resource.
    """
    most = candidates.shape[1]
    for i in range(len(use_start) - 1):
        first, last = use_start[i], use_start[i + 1]
        for u in range(first, last):
            r = use_resource[u]
            ratio[r] = use_weight[u] / capacity[r]
            if seen[r] < 0:  # its first user: whatever that uses too may cover it
                count = 0
                for other in range(first, last):
                    q = use_resource[other]
                    if q != r and (exclusive[q] or not exclusive[r]):
                        candidates[r, count] = q
                        count += 1
                        if count == most:
                            break
            seen[r] = i
        for u in range(first, last):
            r = use_resource[u]
            k = 0
            while k < most and candidates[r, k] >= 0:
                q = candidates[r, k]
                if seen[q] == i and (exclusive[q] or ratio[q] >= ratio[r]):
                    k += 1
                    continue
                # the last candidate takes the place of one that does not cover it
                end = k
                while end + 1 < most and candidates[r, end + 1] >= 0:
                    end += 1
                candidates[r, k] = candidates[r, end]
                candidates[r, end] = -1


def covered_resources(
    use_start: Ints,
    use_resource: Ints,
    use_weight: Floats,
    capacity: Floats,
    exclusive: Bools,
    *,
    in_python: bool = False,
) -> Bools:
    """Return which resources are covered by others that are not, shape (R,).

    Args:
        use_start: As of ``TaskGraph``, as are those up to ``exclusive``.
        use_resource: See there.
        use_weight: See there.
        capacity: See there.
        exclusive: See there.
        in_python: Whether plain Python finds them, in place of compiled code.
    """
    count = len(capacity)
    find = _find_covered.plain if in_python else _find_covered.compiled
    candidates, seen = np.full((count, _CANDIDATES), -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    find(use_start, use_resource, use_weight, capacity, exclusive, candidates, np.zeros(count), seen)
    covered = np.zeros(count, dtype=np.bool_)
    # One after another: of resources that cover each other the last one stays.
    for r in np.flatnonzero(candidates[:, 0] >= 0).tolist():
        others = candidates[r]
        covered[r] = not covered[others[others >= 0]].all()
    return covered
