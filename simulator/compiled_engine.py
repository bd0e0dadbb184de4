"""The fast engine: the meaning of ``simpy_engine``, compiled, in loops over arrays.

What makes it fast:

* A resource *binds* when its users, each at the rate that it would have alone, ask for more than its
  capacity.  Only binding resources couple activities; everything else runs at its rate alone.
* Only the activities joined to a change through binding resources (a *component*) are solved again.
* A component has one entry in the event heap, its earliest end; whatever ends with it is chained to it.
  A component that was solved again leaves its old entry behind, which is known by its serial number.
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
        ("due_s", "f8"),
        ("share", "f8"),  # rate being solved, or _LATER, or _RISING
        ("serial", "i8"),  # of the solution that it is part of
        ("priority", "i8"),
        ("missing", "i4"),  # tasks that it still waits for
        ("chain", "i4"),  # next task with the same heap entry, or -1
        ("follower", "i4"),  # next task of its stream, or -1
        ("instant", "i4"),  # at which it became ready
        ("solved", "i4"),  # instant of its last solution
        ("working", "i4"),
        ("ports", "i4"),  # number of its exclusive resources
    ],
    align=True,
)
_RESOURCE = np.dtype(
    [
        ("capacity", "f8"),
        ("free", "f8"),  # the three are of the class being solved
        ("weight", "f8"),
        ("rising", "i4"),
        ("users", "i4"),
        ("waiters", "i4"),
        ("touched", "i4"),  # instants
        ("asked", "i4"),
        ("solved", "i4"),
        ("exclusive", "i4"),
        ("binds", "i4"),
        ("bound", "i4"),  # whether it did before this instant
    ],
    align=True,
)
_USE = np.dtype([("weight", "f8"), ("resource", "i4"), ("task", "i4"), ("slot", "i4")], align=True)
_ENTRY = np.dtype([("key", "f8"), ("serial", "i8"), ("item", "i4")], align=True)  # of a heap

_LATER, _RISING = -2.0, -1.0
_EARLIEST, _LATENCY = -1, -2  # serials of timers

# Counters
_HEAP, _ENDED, _BEGUN, _TOUCHED, _ASKED, _FLOWS, _LINKS, _LEVELS, _SERIAL, _INSTANT, _TIMER, _FINISHED = range(12)


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
    queue: Records
    """Heaps, by instant of readiness, of the tasks that wait for each exclusive resource."""
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
    count: Ints
    timer_s: Floats
    """Shape (1,): time of the last timer of this instant."""
    ready_s: Floats
    start_s: Floats
    end_s: Floats


def _compiled(function: Function) -> Function:
    return cast(Function, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def simulate(graph: TaskGraph) -> Schedule:
    """Replay a valid task graph (see ``simulator.validation``)."""
    world = _world(graph)
    _run(world)
    assert world.count[_FINISHED] == graph.size, "a valid graph runs to its end"
    return Schedule(ready_s=world.ready_s, start_s=world.start_s, end_s=world.end_s)


def is_cached() -> bool:
    """Whether the compiled code of this very source is on disk."""
    folder = Path(_run.stats.cache_path)  # type: ignore[attr-defined]
    source_s = Path(__file__).stat().st_mtime
    return any(index.stat().st_mtime >= source_s for index in folder.glob("compiled_engine._run-*.nbi"))


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
    return serial < 0 or world.task[world.heap[at].item].serial == serial


@_compiled
def _post(world: _World, time_s: float, task: int, serial: int) -> None:
    """Put an event on the heap; where it is full, most are stale and go."""
    count = world.count
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
    task, count = world.task[i], world.count
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
    task, count = world.task[i], world.count
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
                _push(world.queue[slot:], world.resource[r].waiters, float(task.instant), i, 0)
                world.resource[r].waiters += 1
                _ask(world, r)


@_compiled
def _ask(world: _World, r: int) -> None:
    """Note that an exclusive resource may have to be handed over at this instant."""
    if world.resource[r].asked != world.count[_INSTANT]:
        world.resource[r].asked = world.count[_INSTANT]
        world.asked[world.count[_ASKED]] = r
        world.count[_ASKED] += 1


@_compiled
def _touch(world: _World, r: int) -> None:
    """Note that the users of a resource change at this instant, in a way that may matter to others."""
    if world.resource[r].touched != world.count[_INSTANT]:
        world.resource[r].touched = world.count[_INSTANT]
        world.touched[world.count[_TOUCHED]] = r
        world.count[_TOUCHED] += 1


@_compiled
def _begin(world: _World, i: int, now: float) -> None:
    """Task ``i`` begins to work."""
    world.start_s[i] = now
    task = world.task[i]
    task.working, task.rate, task.remaining, task.since_s = 1, 0.0, task.work, now
    for u in range(world.use_start[i], world.use_start[i + 1]):
        r = world.use[u].resource
        users = world.resource[r].users
        world.users[world.slot_start[r] + users] = u
        world.use[u].slot = users
        world.resource[r].users = users + 1
        if users > 0:  # alone it is bound by its own rate, not by others
            _touch(world, r)
    world.begun[world.count[_BEGUN]] = i
    world.count[_BEGUN] += 1


@_compiled
def _end(world: _World, i: int, now: float) -> None:
    world.end_s[i] = now
    world.ended[world.count[_ENDED]] = i
    world.count[_ENDED] += 1


@_compiled
def _finish(world: _World, i: int, now: float) -> None:
    """The work of task ``i`` is done."""
    world.task[i].working = 0
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
def _hand_over(world: _World, now: float) -> None:
    """Give each exclusive resource to the first that waits for it, if that one heads all its queues."""
    resource = world.resource
    for k in range(world.count[_ASKED]):
        asked = world.asked[k]
        if resource[asked].waiters == 0 or resource[asked].users > 0:
            continue
        i = world.queue[world.slot_start[asked]].item
        first = True
        for u in range(world.use_start[i], world.use_start[i + 1]):
            r = world.use[u].resource
            if resource[r].exclusive and (resource[r].users > 0 or world.queue[world.slot_start[r]].item != i):
                first = False
        if first:
            for u in range(world.use_start[i], world.use_start[i + 1]):
                r = world.use[u].resource
                if resource[r].exclusive:
                    _pop(world.queue[world.slot_start[r] :], resource[r].waiters)
                    resource[r].waiters -= 1
            _begin(world, i, now)


@_compiled
def _bind(world: _World) -> None:
    """Find out which of the touched resources bind now."""
    for k in range(world.count[_TOUCHED]):
        r = world.touched[k]
        wanted = 0.0
        first = world.slot_start[r]
        for slot in range(first, first + world.resource[r].users):
            use = world.use[world.users[slot]]
            wanted += use.weight * world.task[use.task].alone
        world.resource[r].bound = world.resource[r].binds
        world.resource[r].binds = wanted > world.resource[r].capacity * (1.0 + TOLERANCE)


@_compiled
def _share(world: _World, now: float) -> None:
    """Solve again every component that changed at this instant."""
    instant = world.count[_INSTANT]
    _bind(world)
    for k in range(world.count[_TOUCHED]):
        r = world.touched[k]
        if world.resource[r].binds or world.resource[r].bound:
            first = world.slot_start[r]
            for slot in range(first, first + world.resource[r].users):
                i = world.use[world.users[slot]].task
                if world.task[i].solved != instant:
                    _solve(world, i, now)
    for k in range(world.count[_BEGUN]):
        if world.task[world.begun[k]].solved != instant:
            _solve(world, world.begun[k], now)


@_compiled
def _join(world: _World, seed: int) -> None:
    """Collect the component of a task: its activities in ``flows``, its binding resources in ``links``."""
    instant = world.count[_INSTANT]
    world.task[seed].solved = instant
    world.flows[0] = seed
    flows, links, at = 1, 0, 0
    while at < flows:
        i = world.flows[at]
        at += 1
        world.task[i].share = _LATER
        for u in range(world.use_start[i], world.use_start[i + 1]):
            r = world.use[u].resource
            if world.resource[r].binds and world.resource[r].solved != instant:
                world.resource[r].solved = instant
                world.resource[r].free = world.resource[r].capacity
                world.links[links] = r
                links += 1
                first = world.slot_start[r]
                for slot in range(first, first + world.resource[r].users):
                    other = world.use[world.users[slot]].task
                    if world.task[other].solved != instant:
                        world.task[other].solved = instant
                        world.flows[flows] = other
                        flows += 1
    world.count[_FLOWS], world.count[_LINKS] = flows, links


@_compiled
def _solve(world: _World, seed: int, now: float) -> None:
    """Solve the component of a task and post its first end."""
    _join(world, seed)
    flows = world.flows[: world.count[_FLOWS]]
    if world.count[_LINKS] == 0:
        world.task[seed].share = world.task[seed].alone
    else:
        highest = world.task[flows[0]].priority
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
    _schedule(world, now)


@_compiled
def _fill(world: _World, priority: int) -> int:
    """Max-min rates of one class of the component, in what higher ones left; returns its size."""
    resource, levels = world.resource, world.levels
    links = world.links[: world.count[_LINKS]]
    for r in links:
        resource[r].weight, resource[r].rising = 0.0, 0
        if resource[r].free <= TOLERANCE * resource[r].capacity:
            resource[r].free = 0.0  # what rounding leaves of a full resource
    members = 0
    for i in world.flows[: world.count[_FLOWS]]:
        if world.task[i].priority == priority:
            members += 1
            world.task[i].share = _RISING
            for u in range(world.use_start[i], world.use_start[i + 1]):
                resource[world.use[u].resource].weight += world.use[u].weight
                resource[world.use[u].resource].rising += 1
    size = 0
    for r in links:
        if resource[r].rising > 0:
            _push(levels, size, resource[r].free / resource[r].weight, r, 0)
            size += 1
    while size > 0:
        r = levels[0].item
        _pop(levels, size)
        size -= 1
        if resource[r].rising == 0:
            continue
        level = max(resource[r].free, 0.0) / resource[r].weight
        # Levels only rise as others stop, so an entry that is too low goes back.  Those limited below
        # the level stop at their limit, which raises it too.
        if (size == 0 or level <= levels[0].key) and not _stop(world, r, level, True):
            _stop(world, r, level, False)
        elif resource[r].rising > 0:
            _push(levels, size, max(resource[r].free, 0.0) / resource[r].weight, r, 0)
            size += 1
    return members


@_compiled
def _stop(world: _World, r: int, level: float, limited: bool) -> bool:
    """Stop the rising users of a resource: those limited below the level, or all; says whether any did."""
    any_stopped = False
    first = world.slot_start[r]
    for slot in range(first, first + world.resource[r].users):
        i = world.use[world.users[slot]].task
        if world.task[i].share == _RISING and (world.task[i].alone <= level or not limited):
            share = min(level, world.task[i].alone)
            any_stopped = True
            world.task[i].share = share
            for u in range(world.use_start[i], world.use_start[i + 1]):
                other = world.use[u].resource
                world.resource[other].free -= world.use[u].weight * share
                world.resource[other].weight -= world.use[u].weight
                world.resource[other].rising -= 1
    return any_stopped


@_compiled
def _schedule(world: _World, now: float) -> None:
    """Give the component its new rates, and post its first end with all that end with it."""
    count = world.count
    count[_SERIAL] += 1
    flows = world.flows[: count[_FLOWS]]
    soonest, head = np.inf, -1
    for i in flows:
        task = world.task[i]
        if task.share != task.rate:
            task.remaining -= task.rate * (now - task.since_s)
            task.since_s, task.rate = now, task.share
            if task.remaining <= 0.0:
                task.due_s = now
            else:
                task.due_s = now + task.remaining / task.rate if task.rate > 0.0 else np.inf
        task.serial, task.chain = count[_SERIAL], -1
        if task.due_s < soonest:
            soonest, head = task.due_s, i
    if head < 0:
        return
    for i in flows:
        if i != head and world.task[i].due_s <= soonest * (1.0 + TOLERANCE):
            world.task[i].chain = world.task[head].chain
            world.task[head].chain = i
    _post(world, soonest, head, count[_SERIAL])


@_compiled
def _wake(world: _World, now: float, limit: float) -> None:
    """Let happen whatever is due by ``limit``."""
    count = world.count
    while count[_HEAP] > 0 and world.heap[0].key <= limit:
        live, serial, i = _is_live(world, 0), world.heap[0].serial, world.heap[0].item
        _pop(world.heap, count[_HEAP])
        count[_HEAP] -= 1
        while live and i >= 0:
            following = world.task[i].chain
            if serial == _LATENCY:
                _start(world, i, now)
            elif serial == _EARLIEST:
                _ready(world, i, now)
            elif world.task[i].due_s <= limit:
                _finish(world, i, now)
            i = following


@_compiled
def _settle(world: _World, now: float, limit: float) -> None:
    """Follow every end to its last consequence, then hand over and share, once."""
    count = world.count
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
    count = world.count
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
        task.ports, task.serial, task.solved = 0, 0, -1
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
    resource["touched"] = resource["asked"] = resource["solved"] = -1
    use["weight"], use["resource"] = graph.use_weight, graph.use_resource
    world = _World(
        task=task,
        use=use,
        use_start=np.array(graph.use_start, dtype=np.int64),
        resource=resource,
        slot_start=np.zeros(resources + 1, dtype=np.int64),
        users=np.empty(uses, np.int32),
        queue=np.empty(uses, _ENTRY),
        dependent_start=np.zeros(tasks + 1, dtype=np.int64),
        dependent=np.empty(len(graph.after), np.int32),
        heap=np.empty(2 * tasks + 2, _ENTRY),
        levels=np.empty(resources, _ENTRY),
        ended=np.empty(tasks, np.int32),
        begun=np.empty(tasks, np.int32),
        touched=np.empty(resources, np.int32),
        asked=np.empty(resources, np.int32),
        flows=np.empty(tasks, np.int32),
        links=np.empty(resources, np.int32),
        count=np.zeros(12, dtype=np.int64),
        timer_s=np.zeros(1),
        ready_s=np.full(tasks, np.nan),
        start_s=np.full(tasks, np.nan),
        end_s=np.full(tasks, np.nan),
    )
    latest = np.full(int(graph.stream.max(initial=-1)) + 1, -1, dtype=np.int64)
    arrays = (np.array(graph.after_start, np.int64), np.array(graph.after, np.int64), np.array(graph.stream, np.int64))
    _link(world, *arrays, latest)
    return world
