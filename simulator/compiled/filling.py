"""Max-min fair rates of some activities in the capacity that the others leave, by progressive filling.

This is the compiled form of ``simulator.graph.sharing.max_min_rates``, over the resources that bind.
"""

from simulator.compiled.heap import pop, push
from simulator.compiled.jit import compiled
from simulator.compiled.state import FLOWS, INSTANT, LINKS, MIXED, SOLUTION, ReplayState, int64
from simulator.graph.sharing import TOLERANCE

_LATER, _RISING = -2.0, -1.0
"""Marks in place of a share: the priority class of the activity is not filled yet; its rate still rises."""
_LIMITED, _ALL = int64(1), int64(0)
"""Which rising users a level stops: those whose own rate is lower, or all."""
_NO_SERIAL = int64(0)
"""Entries of levels are never stale."""


@compiled
def solve_rates(state: ReplayState) -> None:
    """Solve the rates and bottlenecks of the included activities, one priority class after the other, highest first.

    Source:
        Bertsekas and Gallager, "Data Networks", 2nd ed., Sec. 6.5.2.
    """
    _gather(state)
    flows = state.flows[: state.counts[FLOWS]]
    highest = state.task[flows[0]].priority
    if state.counts[MIXED]:
        for i in flows:
            highest = max(highest, state.task[i].priority)
    left = len(flows)
    while left > 0:
        left -= _fill(state, highest)
        following = highest
        for i in flows:
            priority = state.task[i].priority
            if priority < highest and (following == highest or priority > following):
                following = priority
        highest = following


@compiled
def _gather(state: ReplayState) -> None:
    """Collect the binding resources of the included activities in ``links``, with the capacity that others leave."""
    count, resource = state.counts, state.resource
    count[SOLUTION] += 1
    count[LINKS] = 0
    for i in state.flows[: count[FLOWS]]:
        task = state.task[i]
        task.share, task.bottleneck = _LATER, -1
        for u in range(state.use_start[i], state.use_start[i + 1]):
            r = state.use[u].resource
            if resource[r].binds and resource[r].solution != count[SOLUTION]:
                resource[r].solution = count[SOLUTION]
                resource[r].free = resource[r].capacity
                state.links[count[LINKS]] = r
                count[LINKS] += 1
                first = state.slot_start[r]
                for slot in range(first, first + resource[r].users):
                    use = state.use[state.users[slot]]
                    if state.task[use.task].solved != count[INSTANT]:
                        resource[r].free -= use.weight * state.task[use.task].rate


@compiled
def _fill(state: ReplayState, priority: int) -> int:  # noqa: C901 - one compiled pass over shared arrays
    """Solve the rates of one priority class of the included activities in the free capacity; return its size.

    All rates rise together.  The resource that is full first, at the lowest level, stops the activities that use
    it; the level of the others rises, as less weight is left on them::

        resource   capacity   users     level             then
        r0         6          a, b, c   6 / 3 = 2: full   a, b, c stop at 2
        r1         9          c, d      9 / 2 = 4.5       (9 - 2) / 1 = 7: d stops at 7
    """
    resource, levels = state.resource, state.levels
    links = state.links[: state.counts[LINKS]]
    for r in links:
        resource[r].weight, resource[r].rising = 0.0, 0
        if resource[r].free <= TOLERANCE * resource[r].capacity:
            resource[r].free = 0.0  # what rounding leaves of a full resource
    members = 0
    for i in state.flows[: state.counts[FLOWS]]:
        if state.task[i].priority == priority:
            members += 1
            state.task[i].share = state.task[i].alone
            for u in range(state.use_start[i], state.use_start[i + 1]):
                r = state.use[u].resource
                if resource[r].binds:
                    state.task[i].share = _RISING
                    resource[r].weight += state.use[u].weight
                    resource[r].rising += 1
    size = int64(0)
    for r in links:
        resource[r].class_weight = resource[r].weight
        if resource[r].rising > 0:
            push(levels, size, _level(state, r), r, _NO_SERIAL)
            size += 1
    while size > 0:
        r = levels[0].item
        pop(levels, size)
        size -= 1
        if resource[r].rising == 0:
            continue
        level = _level(state, r)
        # Levels only rise as others stop, so an entry that is too low goes back.  Those limited below
        # the level stop at their limit, which raises it too.
        if (size == 0 or level <= levels[0].key) and not _stop(state, r, level, _LIMITED):
            _stop(state, r, level, _ALL)
        elif resource[r].rising > 0:
            push(levels, size, _level(state, r), r, _NO_SERIAL)
            size += 1
    return members


@compiled
def _level(state: ReplayState, r: int) -> float:
    """Return the rate of its rising users at which a resource is full."""
    resource = state.resource[r]
    if resource.weight < 1e-3 * resource.class_weight:  # mostly cancelled: add the rest up again, without rounding
        first, resource.weight = state.slot_start[r], 0.0
        for slot in range(first, first + resource.users):
            use = state.use[state.users[slot]]
            if state.task[use.task].share == _RISING:
                resource.weight += use.weight
        resource.class_weight = resource.weight
    return float(max(resource.free, 0.0) / resource.weight)


@compiled
def _stop(state: ReplayState, r: int, level: float, limited: int) -> bool:
    """Stop the rising users of a resource, ``_LIMITED`` below the level or ``_ALL``; return whether there were any."""
    any_stopped = False
    first = state.slot_start[r]
    for slot in range(first, first + state.resource[r].users):
        i = state.use[state.users[slot]].task
        task = state.task[i]
        if task.share == _RISING and (task.alone <= level or not limited):
            any_stopped = True
            task.share = task.alone if limited else level
            task.bottleneck = -1 if limited else r
            for u in range(state.use_start[i], state.use_start[i + 1]):
                other = state.resource[state.use[u].resource]
                if other.binds:
                    other.free -= state.use[u].weight * task.share
                    other.weight -= state.use[u].weight
                    other.rising -= 1
    return any_stopped
