"""The fast engine: the meaning of ``simpy_engine``, compiled, in loops over arrays.

What makes it fast:

* A resource *binds* when its users, each at the rate that it would have alone, ask for more than its
  capacity.  Only binding resources couple activities; everything else runs at its rate alone.
* Only the activities that a change reaches are solved again: see ``_share``.
* An activity that keeps its rate keeps its entry in the event heap; one that does not leaves it behind,
  and it is known to be stale by its serial number.
* Timers set at one instant for one time share an entry too.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from simulator.sharing import TOLERANCE
from simulator.task_graph import Schedule, TaskGraph

__all__ = ["is_cached", "simulate"]

Records = Any  # structured arrays, whose fields the compiler reads as attributes
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Indices = NDArray[np.int32]
Function = TypeVar("Function", bound=Callable[..., Any])

_TASK = np.dtype(
    [
        ("work", "f8"),
        ("latency_s", "f8"),
        ("earliest_s", "f8"),
        ("alone", "f8"),  # rate when nobody else uses its resources
        ("rate", "f8"),
        ("remaining", "f8"),  # work that remained at since_s
        ("since_s", "f8"),
        ("share", "f8"),  # rate being solved, or _LATER, or _RISING
        ("serial", "i8"),  # of its rate
        ("priority", "i8"),
        ("missing", "i4"),  # tasks that it still waits for
        ("chain", "i4"),  # next timer of the same heap entry, or -1
        ("follower", "i4"),  # next task of its stream, or -1
        ("instant", "i4"),  # at which it became ready
        ("solved", "i4"),  # instant of its last solution
        ("bottleneck", "i4"),  # binding resource that holds its rate, or -1
        ("ports", "i4"),  # number of its exclusive resources
    ],
    align=True,
)
_RESOURCE = np.dtype(
    [
        ("capacity", "f8"),
        ("free", "f8"),  # what the solved so far leave
        ("weight", "f8"),  # of those whose rates rise
        ("class_weight", "f8"),  # the same when it was last added up
        ("rising", "i4"),
        ("users", "i4"),
        ("waiters", "i4"),
        ("next", "i4"),  # of them, to begin at this instant, or -1
        ("touched", "i4"),  # instants
        ("asked", "i4"),
        ("exclusive", "i4"),
        ("binds", "i4"),
        ("solution", "i8"),
    ],
    align=True,
)
_USE = np.dtype([("weight", "f8"), ("resource", "i4"), ("task", "i4"), ("slot", "i4")], align=True)
_ENTRY = np.dtype([("key", "f8"), ("serial", "i8"), ("item", "i4")], align=True)  # of a heap

_LATER, _RISING = -2.0, -1.0
_EARLIEST, _LATENCY = -1, -2  # serials of timers

# Counters
_HEAP, _ENDED, _BEGUN, _TOUCHED, _ASKED, _FLOWS, _LINKS, _SOLUTION, _SERIAL, _INSTANT, _TIMER, _FINISHED = range(12)
_MIXED = 12  # whether there is more than one priority

_SERVED = -1  # in place of the number of ports: the wait for them is over
_ROUNDS = 6  # after which everything joined to a change is solved


class _World(NamedTuple):
    """Everything that a replay reads and writes."""

    task: Records
    use: Records
    use_start: Ints
    """Uses of each task."""
    resource: Records
    slot_start: Ints
    """First slot of each resource in ``users`` and ``queue``."""
    users: Indices
    """Uses by the activities that work, in the first slots of each resource."""
    queue: Indices
    """Tasks that wait for each exclusive resource, in any order, in its first slots."""
    dependent_start: Ints
    dependent: Indices
    heap: Records
    """Events by time."""
    levels: Records
    """Heap, by the rate at which they fill, of the resources being solved."""
    ended: Indices
    begun: Indices
    touched: Indices
    asked: Indices
    flows: Indices
    links: Indices
    counts: Ints
    timer_s: Floats
    """Shape (1,): time of the last timer of this instant."""
    ready_s: Floats
    start_s: Floats
    end_s: Floats


def _compiled(function: Function) -> Function:
    # No array is made or kept in compiled code, and counting references would take most of the time.
    options: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
    return cast(Function, numba.njit(**options)(function))


def simulate(graph: TaskGraph) -> Schedule:
    """Replay a valid task graph (see ``simulator.validation``)."""
    world = _world(graph)
    _run(world)
    assert world.counts[_FINISHED] == graph.size, "a valid graph runs to its end"
    return Schedule(ready_s=world.ready_s, start_s=world.start_s, end_s=world.end_s)


def is_cached() -> bool:
    """Whether this process need not compile: it has, or the code of this very source is on disk."""
    dispatcher: Any = _run
    saved = Path(dispatcher.stats.cache_path).glob("compiled_engine._run-*.nbi")
    source_s = Path(__file__).stat().st_mtime
    return bool(dispatcher.signatures) or any(index.stat().st_mtime >= source_s for index in saved)


@_compiled
def _push(heap: Records, size: int, key: float, item: int, serial: int) -> None:
    """Put an entry on a heap of ``size`` entries, ordered by key, then item."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if heap[above].key < key or (heap[above].key == key and heap[above].item <= item):
            break
        heap[at] = heap[above]
        at = above
    heap[at].key = key
    heap[at].item = item
    heap[at].serial = serial


@_compiled
def _pop(heap: Records, size: int) -> None:
    """Drop the first of ``size`` entries."""
    last = size - 1
    key, item = heap[last].key, heap[last].item
    at = 0
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        right = below + 1
        if right < last and (
            heap[right].key < heap[below].key
            or (heap[right].key == heap[below].key and heap[right].item < heap[below].item)
        ):
            below = right
        if heap[below].key > key or (heap[below].key == key and heap[below].item >= item):
            break
        heap[at] = heap[below]
        at = below
    heap[at] = heap[last]


@_compiled
def _is_live(world: _World, at: int) -> bool:
    """Whether an event is a timer, or of a component's last solution."""
    serial = world.heap[at].serial
    return bool(serial < 0 or world.task[world.heap[at].item].serial == serial)


@_compiled
def _post(world: _World, time_s: float, task: int, serial: int) -> None:
    """Put an event on the heap; where it is full, most are stale and go."""
    count = world.counts
    if count[_HEAP] == len(world.heap):
        kept = 0
        for at in range(count[_HEAP]):
            if _is_live(world, at):
                key, item, old = world.heap[at].key, world.heap[at].item, world.heap[at].serial
                _push(world.heap, kept, key, item, old)
                kept += 1
        count[_HEAP] = kept
    _push(world.heap, count[_HEAP], time_s, task, serial)
    count[_HEAP] += 1


@_compiled
def _arrive(world: _World, i: int, now: float, limit: float) -> None:
    """Nothing is missing for task ``i`` any more, save perhaps its time."""
    if world.task[i].earliest_s > limit:
        world.task[i].chain = -1
        _post(world, world.task[i].earliest_s, i, _EARLIEST)
    else:
        _ready(world, i, now)


@_compiled
def _ready(world: _World, i: int, now: float) -> None:
    task, count = world.task[i], world.counts
    ready_s = max(now, task.earliest_s)
    world.ready_s[i] = ready_s
    task.instant = count[_INSTANT]
    if task.latency_s == 0.0:
        _start(world, i, now)
        return
    over_s = ready_s + task.latency_s
    head = count[_TIMER]
    if head >= 0 and world.timer_s[0] == over_s:
        task.chain = world.task[head].chain
        world.task[head].chain = i
    else:
        task.chain = -1
        _post(world, over_s, i, _LATENCY)
        count[_TIMER], world.timer_s[0] = i, over_s


@_compiled
def _start(world: _World, i: int, now: float) -> None:
    """The latency of task ``i`` is over."""
    task = world.task[i]
    if task.work == 0.0:
        world.start_s[i] = now
        _end(world, i, now)
    elif task.ports == 0:
        _begin(world, i, now)
    else:
        for u in range(world.use_start[i], world.use_start[i + 1]):
            r = world.use[u].resource
            if world.resource[r].exclusive:
                slot = world.slot_start[r]
                world.queue[slot + world.resource[r].waiters] = i
                world.resource[r].waiters += 1
                _ask(world, r)


@_compiled
def _ask(world: _World, r: int) -> None:
    """Note that an exclusive resource may have to be handed over at this instant."""
    if world.resource[r].asked != world.counts[_INSTANT]:
        world.resource[r].asked = world.counts[_INSTANT]
        world.asked[world.counts[_ASKED]] = r
        world.counts[_ASKED] += 1


@_compiled
def _touch(world: _World, r: int) -> None:
    """Note that the users of a resource change at this instant, in a way that may matter to others."""
    if world.resource[r].touched != world.counts[_INSTANT]:
        world.resource[r].touched = world.counts[_INSTANT]
        world.touched[world.counts[_TOUCHED]] = r
        world.counts[_TOUCHED] += 1


@_compiled
def _begin(world: _World, i: int, now: float) -> None:
    """Task ``i`` begins to work."""
    world.start_s[i] = now
    task = world.task[i]
    task.rate, task.remaining, task.since_s = 0.0, task.work, now
    for u in range(world.use_start[i], world.use_start[i + 1]):
        r = world.use[u].resource
        users = world.resource[r].users
        world.users[world.slot_start[r] + users] = u
        world.use[u].slot = users
        world.resource[r].users = users + 1
        if users > 0:  # alone it is bound by its own rate, not by others
            _touch(world, r)
    world.begun[world.counts[_BEGUN]] = i
    world.counts[_BEGUN] += 1


@_compiled
def _end(world: _World, i: int, now: float) -> None:
    world.end_s[i] = now
    world.ended[world.counts[_ENDED]] = i
    world.counts[_ENDED] += 1


@_compiled
def _finish(world: _World, i: int, now: float) -> None:
    """The work of task ``i`` is done."""
    world.task[i].serial = 0
    for u in range(world.use_start[i], world.use_start[i + 1]):
        r = world.use[u].resource
        users = world.resource[r].users - 1
        world.resource[r].users = users
        last = world.users[world.slot_start[r] + users]
        slot = world.use[u].slot
        world.users[world.slot_start[r] + slot] = last
        world.use[last].slot = slot
        if world.resource[r].binds:
            _touch(world, r)
        if world.resource[r].exclusive:
            _ask(world, r)
    _end(world, i, now)


@_compiled
def _may_begin(world: _World, i: int) -> bool:
    """Whether all exclusive resources of task ``i`` are free."""
    for u in range(world.use_start[i], world.use_start[i + 1]):
        r = world.use[u].resource
        if world.resource[r].exclusive and world.resource[r].users > 0:
            return False
    return True


@_compiled
def _earlier(world: _World, i: int, j: int) -> bool:
    """Whether task ``i`` became ready before ``j``; at one instant the smaller id is the earlier."""
    first, second = world.task[i].instant, world.task[j].instant
    return first < second or (first == second and i < j)


@_compiled
def _find_next(world: _World, r: int) -> None:
    """Note the earliest that waits for a free resource and may begin; drop who has begun elsewhere."""
    resource, first = world.resource[r], world.slot_start[r]
    resource.next, k = -1, 0
    while k < resource.waiters and resource.users == 0:
        i = world.queue[first + k]
        if world.task[i].ports == _SERVED:
            resource.waiters -= 1
            world.queue[first + k] = world.queue[first + resource.waiters]
            continue
        if (resource.next < 0 or _earlier(world, i, resource.next)) and _may_begin(world, i):
            resource.next = i
        k += 1


@_compiled
def _hand_over(world: _World, now: float) -> None:
    """Let begin, in order of readiness, whoever finds all its exclusive resources free."""
    for k in range(world.counts[_ASKED]):
        _find_next(world, world.asked[k])
    while True:
        best = -1
        for k in range(world.counts[_ASKED]):
            i = world.resource[world.asked[k]].next
            if i >= 0 and (best < 0 or _earlier(world, i, best)):
                best = i
        if best < 0:
            return
        world.task[best].ports = _SERVED
        _begin(world, best, now)
        for k in range(world.counts[_ASKED]):
            r = world.asked[k]
            i = world.resource[r].next
            if i >= 0 and not _may_begin(world, i):
                _find_next(world, r)


@_compiled
def _bind(world: _World) -> None:
    """Find out which of the touched resources bind now; who was held by one of them is to be solved."""
    for k in range(world.counts[_TOUCHED]):
        r = world.touched[k]
        wanted, bound = 0.0, world.resource[r].binds
        first = world.slot_start[r]
        last = first + world.resource[r].users
        for slot in range(first, last):
            use = world.use[world.users[slot]]
            wanted += use.weight * world.task[use.task].alone
            if bound and world.task[use.task].bottleneck == r:
                _include(world, use.task)
        world.resource[r].binds = wanted > world.resource[r].capacity * (1.0 + TOLERANCE)


@_compiled
def _include(world: _World, i: int) -> None:
    """Take a task among those to be solved at this instant."""
    if world.task[i].solved != world.counts[_INSTANT]:
        world.task[i].solved = world.counts[_INSTANT]
        world.flows[world.counts[_FLOWS]] = i
        world.counts[_FLOWS] += 1


@_compiled
def _include_joined(world: _World) -> None:
    """Include whoever is joined to the included through binding resources."""
    at = 0
    while at < world.counts[_FLOWS]:
        i = world.flows[at]
        at += 1
        for u in range(world.use_start[i], world.use_start[i + 1]):
            r = world.use[u].resource
            if world.resource[r].binds:
                first = world.slot_start[r]
                for slot in range(first, first + world.resource[r].users):
                    _include(world, world.use[world.users[slot]].task)


@_compiled
def _share(world: _World, now: float) -> None:
    """Solve whatever changed at this instant.

    The rates of the included are max-min fair in what the others leave.  Where that makes one of the
    others' rates unfair, or theirs one of the included's, those others are included too, and so on:
    in the end every activity has a bottleneck, which proves the rates max-min fair for all.
    """
    count = world.counts
    count[_FLOWS] = 0
    _bind(world)
    for k in range(count[_BEGUN]):
        _include(world, world.begun[k])
    solved, rounds = 0, 0
    while count[_FLOWS] > solved:
        if rounds == _ROUNDS or count[_MIXED]:
            _include_joined(world)
        solved = count[_FLOWS]
        rounds += 1
        _solve(world)
        if rounds <= _ROUNDS and not count[_MIXED]:
            for k in range(count[_LINKS]):
                _include_unfair(world, world.links[k])
    _schedule(world, now)


@_compiled
def _include_unfair(world: _World, r: int) -> None:
    """Include the users of a resource that its new rates are unfair to, or that are unfair to them."""
    resource, first = world.resource[r], world.slot_start[r]
    last = first + resource.users
    highest, held = 0.0, np.inf
    for slot in range(first, last):
        task = world.task[world.use[world.users[slot]].task]
        if task.solved == world.counts[_INSTANT]:
            highest = max(highest, task.share)
            if task.bottleneck == r:
                held = task.share
    full = resource.free <= TOLERANCE * resource.capacity
    for slot in range(first, last):
        i = world.use[world.users[slot]].task
        task = world.task[i]
        if task.solved != world.counts[_INSTANT]:
            could_rise = task.bottleneck == r and (not full or task.rate * (1.0 + TOLERANCE) < highest)
            if could_rise or task.rate > held * (1.0 + TOLERANCE):
                _include(world, i)


@_compiled
def _solve(world: _World) -> None:
    """Rates and bottlenecks of the included, in what the others leave."""
    _gather(world)
    flows = world.flows[: world.counts[_FLOWS]]
    highest = world.task[flows[0]].priority
    if world.counts[_MIXED]:
        for i in flows:
            highest = max(highest, world.task[i].priority)
    left = len(flows)
    while left > 0:
        left -= _fill(world, highest)
        following = highest
        for i in flows:
            priority = world.task[i].priority
            if priority < highest and (following == highest or priority > following):
                following = priority
        highest = following


@_compiled
def _gather(world: _World) -> None:
    """Collect the binding resources of the included in ``links``, with what the others leave of them."""
    count, resource = world.counts, world.resource
    count[_SOLUTION] += 1
    count[_LINKS] = 0
    for i in world.flows[: count[_FLOWS]]:
        task = world.task[i]
        task.share, task.bottleneck = _LATER, -1
        for u in range(world.use_start[i], world.use_start[i + 1]):
            r = world.use[u].resource
            if resource[r].binds and resource[r].solution != count[_SOLUTION]:
                resource[r].solution = count[_SOLUTION]
                resource[r].free = resource[r].capacity
                world.links[count[_LINKS]] = r
                count[_LINKS] += 1
                first = world.slot_start[r]
                for slot in range(first, first + resource[r].users):
                    use = world.use[world.users[slot]]
                    if world.task[use.task].solved != count[_INSTANT]:
                        resource[r].free -= use.weight * world.task[use.task].rate


@_compiled
def _fill(world: _World, priority: int) -> int:
    """Max-min rates of one class of the included, in what is left; returns its size."""
    resource, levels = world.resource, world.levels
    links = world.links[: world.counts[_LINKS]]
    for r in links:
        resource[r].weight, resource[r].rising = 0.0, 0
        if resource[r].free <= TOLERANCE * resource[r].capacity:
            resource[r].free = 0.0  # what rounding leaves of a full resource
    members = 0
    for i in world.flows[: world.counts[_FLOWS]]:
        if world.task[i].priority == priority:
            members += 1
            world.task[i].share = world.task[i].alone
            for u in range(world.use_start[i], world.use_start[i + 1]):
                r = world.use[u].resource
                if resource[r].binds:
                    world.task[i].share = _RISING
                    resource[r].weight += world.use[u].weight
                    resource[r].rising += 1
    size = 0
    for r in links:
        resource[r].class_weight = resource[r].weight
        if resource[r].rising > 0:
            _push(levels, size, _level(world, r), r, 0)
            size += 1
    while size > 0:
        r = levels[0].item
        _pop(levels, size)
        size -= 1
        if resource[r].rising == 0:
            continue
        level = _level(world, r)
        # Levels only rise as others stop, so an entry that is too low goes back.  Those limited below
        # the level stop at their limit, which raises it too.
        if (size == 0 or level <= levels[0].key) and not _stop(world, r, level, True):
            _stop(world, r, level, False)
        elif resource[r].rising > 0:
            _push(levels, size, _level(world, r), r, 0)
            size += 1
    return members


@_compiled
def _level(world: _World, r: int) -> float:
    """Rate at which a resource is full."""
    resource = world.resource[r]
    if resource.weight < 1e-3 * resource.class_weight:  # mostly cancelled: add up what is left, exactly
        first, resource.weight = world.slot_start[r], 0.0
        for slot in range(first, first + resource.users):
            use = world.use[world.users[slot]]
            if world.task[use.task].share == _RISING:
                resource.weight += use.weight
        resource.class_weight = resource.weight
    return float(max(resource.free, 0.0) / resource.weight)


@_compiled
def _stop(world: _World, r: int, level: float, limited: bool) -> bool:
    """Stop the rising users of a resource: those limited below the level, or all; says whether any did."""
    any_stopped = False
    first = world.slot_start[r]
    for slot in range(first, first + world.resource[r].users):
        i = world.use[world.users[slot]].task
        task = world.task[i]
        if task.share == _RISING and (task.alone <= level or not limited):
            any_stopped = True
            task.share = task.alone if limited else level
            task.bottleneck = -1 if limited else r
            for u in range(world.use_start[i], world.use_start[i + 1]):
                other = world.resource[world.use[u].resource]
                if other.binds:
                    other.free -= world.use[u].weight * task.share
                    other.weight -= world.use[u].weight
                    other.rising -= 1
    return any_stopped


@_compiled
def _schedule(world: _World, now: float) -> None:
    """Give the included their new rates; who keeps its rate keeps its end."""
    count = world.counts
    for i in world.flows[: count[_FLOWS]]:
        task = world.task[i]
        if task.share == task.rate:
            continue
        task.remaining -= task.rate * (now - task.since_s)
        task.since_s, task.rate = now, task.share
        count[_SERIAL] += 1
        task.serial = count[_SERIAL]  # any earlier event is stale
        if task.remaining <= 0.0:
            _post(world, now, i, task.serial)
        elif task.rate > 0.0:
            _post(world, now + task.remaining / task.rate, i, task.serial)


@_compiled
def _wake(world: _World, now: float, limit: float) -> None:
    """Let happen whatever is due by ``limit``."""
    count = world.counts
    while count[_HEAP] > 0 and world.heap[0].key <= limit:
        live, serial, i = _is_live(world, 0), world.heap[0].serial, world.heap[0].item
        _pop(world.heap, count[_HEAP])
        count[_HEAP] -= 1
        while live and i >= 0:
            following = world.task[i].chain if serial < 0 else -1
            if serial == _LATENCY:
                _start(world, i, now)
            elif serial == _EARLIEST:
                _ready(world, i, now)
            else:
                _finish(world, i, now)
            i = following


@_compiled
def _settle(world: _World, now: float, limit: float) -> None:
    """Follow every end to its last consequence, then hand over and share, once."""
    count = world.counts
    at = 0
    while at < count[_ENDED]:
        i = world.ended[at]
        at += 1
        for d in range(world.dependent_start[i], world.dependent_start[i + 1]):
            _miss_one_less(world, world.dependent[d], now, limit)
        if world.task[i].follower >= 0:
            _miss_one_less(world, world.task[i].follower, now, limit)
    _hand_over(world, now)
    _share(world, now)
    count[_FINISHED] += at


@_compiled
def _miss_one_less(world: _World, i: int, now: float, limit: float) -> None:
    world.task[i].missing -= 1
    if world.task[i].missing == 0:
        _arrive(world, i, now, limit)


@_compiled
def _run(world: _World) -> None:
    """Replay instant after instant until nothing is left to happen."""
    count = world.counts
    count[_TIMER] = -1
    for i in range(len(world.task)):
        if world.task[i].missing == 0:
            _arrive(world, i, 0.0, 0.0)
    _settle(world, 0.0, 0.0)
    while count[_HEAP] > 0:
        if not _is_live(world, 0):
            _pop(world.heap, count[_HEAP])
            count[_HEAP] -= 1
            continue
        now = world.heap[0].key
        count[_INSTANT] += 1
        count[_ENDED] = count[_BEGUN] = count[_TOUCHED] = count[_ASKED] = 0
        count[_TIMER] = -1
        limit = now * (1.0 + TOLERANCE)
        _wake(world, now, limit)
        _settle(world, now, limit)


@_compiled
def _link(world: _World, after_start: Ints, after: Ints, stream: Ints, latest: Ints) -> None:
    """Fill in what follows from the graph: dependents, followers, owners, slots, rates alone."""
    for i in range(len(world.task)):
        task = world.task[i]
        task.missing, task.follower = after_start[i + 1] - after_start[i], -1
        task.ports, task.serial, task.solved, task.bottleneck = 0, 0, -1, -1
        if stream[i] >= 0:
            if latest[stream[i]] >= 0:
                world.task[latest[stream[i]]].follower = i
                task.missing += 1
            latest[stream[i]] = i
        for u in range(world.use_start[i], world.use_start[i + 1]):
            r = world.use[u].resource
            world.use[u].task = i
            world.slot_start[r + 1] += 1
            task.alone = min(task.alone, world.resource[r].capacity / world.use[u].weight)
            task.ports += world.resource[r].exclusive
        if world.use_start[i] == world.use_start[i + 1]:
            task.alone = min(task.alone, 1.0)
        for d in range(after_start[i], after_start[i + 1]):
            world.dependent_start[after[d] + 1] += 1
    for r in range(len(world.resource)):
        world.slot_start[r + 1] += world.slot_start[r]
    for i in range(len(world.task)):
        world.dependent_start[i + 1] += world.dependent_start[i]
        world.task[i].chain = 0
    for i in range(len(world.task)):
        for d in range(after_start[i], after_start[i + 1]):
            before = after[d]
            world.dependent[world.dependent_start[before] + world.task[before].chain] = i
            world.task[before].chain += 1


def _world(graph: TaskGraph) -> _World:
    """Copy a graph into the records of a replay.  Scratch arrays take memory only where they are touched."""
    tasks, resources, uses = graph.size, len(graph.capacity), len(graph.use_resource)
    task, resource, use = np.empty(tasks, _TASK), np.zeros(resources, _RESOURCE), np.empty(uses, _USE)
    task["work"], task["latency_s"], task["earliest_s"] = graph.work, graph.latency_s, graph.start_s
    task["alone"], task["priority"] = graph.rate_limit, graph.priority
    resource["capacity"], resource["exclusive"] = graph.capacity, graph.exclusive
    resource["touched"] = resource["asked"] = -1
    use["weight"], use["resource"] = graph.use_weight, graph.use_resource
    world = _World(
        task=task,
        use=use,
        use_start=np.array(graph.use_start, dtype=np.int64),
        resource=resource,
        slot_start=np.zeros(resources + 1, dtype=np.int64),
        users=np.empty(uses, np.int32),
        queue=np.empty(uses, np.int32),
        dependent_start=np.zeros(tasks + 1, dtype=np.int64),
        dependent=np.empty(len(graph.after), np.int32),
        heap=np.empty(4 * tasks + 2, _ENTRY),
        levels=np.empty(resources, _ENTRY),
        ended=np.empty(tasks, np.int32),
        begun=np.empty(tasks, np.int32),
        touched=np.empty(resources, np.int32),
        asked=np.empty(resources, np.int32),
        flows=np.empty(tasks, np.int32),
        links=np.empty(resources, np.int32),
        counts=np.zeros(13, dtype=np.int64),
        timer_s=np.zeros(1),
        ready_s=np.full(tasks, np.nan),
        start_s=np.full(tasks, np.nan),
        end_s=np.full(tasks, np.nan),
    )
    world.counts[_MIXED] = tasks > 0 and bool(np.any(graph.priority != graph.priority[0]))
    latest = np.full(int(graph.stream.max(initial=-1)) + 1, -1, dtype=np.int64)
    arrays = (np.array(graph.after_start, np.int64), np.array(graph.after, np.int64), np.array(graph.stream, np.int64))
    _link(world, *arrays, latest)
    return world
