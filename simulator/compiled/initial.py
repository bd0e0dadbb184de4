"""The initial state of a replay, laid out from a task graph."""

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from simulator.compiled.covered import covered_resources
from simulator.compiled.jit import saved
from simulator.compiled.state import COUNTERS, ENTRY, MIXED, RESOURCE, TASK, USE, ReplayState, as_lists
from simulator.graph.task_graph import TaskGraph


@saved
def _link(
    state: ReplayState,
    use_start: Ints,
    use_resource: Ints,
    use_weight: Floats,
    covered: Bools,
    after_start: Ints,
    after: Ints,
    stream: Ints,
    latest: Ints,
) -> None:
    """Fill in what follows from the graph: uses, slots, rates alone, dependents, and followers in streams.

    Args:
        state: State with the columns of tasks and resources; the rest is written here.
        use_start: Offsets of the next two, shape (T + 1,).
        use_resource: Resources that the tasks use, one task after the other.
        use_weight: Weights of these uses.
        covered: Flags of the resources that are left out, shape (R,).
        after_start: Offsets of ``after``, shape (T + 1,).
        after: Dependencies of the tasks, one task after the other.
        stream: Stream of each task, shape (T,); -1 for none.
        latest: Scratch: the last task of each stream so far, -1 at first.
    """
    kept = 0
    for i in range(len(state.task)):
        task = state.task[i]
        task.missing, task.follower = after_start[i + 1] - after_start[i], -1
        task.ports, task.serial, task.solved, task.bottleneck = 0, 0, -1, -1
        # A task of a stream waits for the one before it too, so both are linked and counted.
        if stream[i] >= 0:
            if latest[stream[i]] >= 0:
                state.task[latest[stream[i]]].follower = i
                task.missing += 1
            latest[stream[i]] = i
        # Alone, a task runs at the rate of its tightest resource; each of its uses takes a slot of its resource.
        state.use_start[i] = kept
        for u in range(use_start[i], use_start[i + 1]):
            r = use_resource[u]
            task.alone = min(task.alone, state.resource[r].capacity / use_weight[u])
            if not covered[r]:
                use = state.use[kept]
                use.resource, use.weight, use.task = r, use_weight[u], i
                kept += 1
                state.slot_start[r + 1] += 1
                task.ports += state.resource[r].exclusive
        if use_start[i] == use_start[i + 1]:
            task.alone = min(task.alone, 1.0)  # without resources, work is in seconds
        for d in range(after_start[i], after_start[i + 1]):
            state.dependent_start[after[d] + 1] += 1
    state.use_start[len(state.task)] = kept
    # Counts become offsets; then every dependency is entered in the row of the task that it is a dependent of.
    # Tasks 1 and 2 that wait for task 0 have dependent_start [0, 2, 2, 2] and dependent [1, 2].
    for r in range(len(state.resource)):
        state.slot_start[r + 1] += state.slot_start[r]
    for i in range(len(state.task)):
        state.dependent_start[i + 1] += state.dependent_start[i]
        state.task[i].chain = 0
    # ``chain`` counts the entries of each row so far; the replay sets it anew before it is read.
    for i in range(len(state.task)):
        for d in range(after_start[i], after_start[i + 1]):
            before = after[d]
            state.dependent[state.dependent_start[before] + state.task[before].chain] = i
            state.task[before].chain += 1


def initial_state(graph: TaskGraph, *, in_python: bool = False) -> ReplayState:
    """Copy a graph into the records of a replay, without resources that are unused or covered by others.

    Scratch arrays are left uninitialised, so they take memory only where they are written.

    Args:
        graph: A valid graph.
        in_python: Whether plain Python lays it out and replays it: its arrays are lists.
    """
    used = np.zeros(len(graph.capacity), dtype=np.bool_)
    used[graph.use_resource] = True
    number = np.cumsum(used) - 1  # of a million links, those of one replica may be all that are used
    capacity, exclusive = np.array(graph.capacity[used]), np.array(graph.exclusive[used], np.bool_)
    tasks, resources = graph.size, len(capacity)
    uses_of = np.array(graph.use_start, np.int64), number[graph.use_resource], np.array(graph.use_weight)
    covered = covered_resources(*uses_of, capacity, exclusive, in_python=in_python)
    uses = int(np.count_nonzero(~covered[uses_of[1]]))
    task, resource = np.empty(tasks, TASK), np.zeros(resources, RESOURCE)
    task["work"], task["latency_s"], task["earliest_s"] = graph.work, graph.latency_s, graph.start_s
    task["alone"], task["priority"] = graph.rate_limit, graph.priority
    resource["capacity"], resource["exclusive"] = capacity, exclusive
    resource["touched"] = resource["offered"] = -1  # in no list yet
    state = ReplayState(
        task=task,
        use=np.empty(uses, USE),
        use_start=np.empty(tasks + 1, np.int64),
        resource=resource,
        slot_start=np.zeros(resources + 1, dtype=np.int64),
        users=np.empty(uses, np.int32),
        queue=np.empty(uses, np.int64),
        dependent_start=np.zeros(tasks + 1, dtype=np.int64),
        dependent=np.empty(len(graph.after), np.int32),
        heap=np.empty(4 * tasks + 2, ENTRY),
        levels=np.empty(resources, ENTRY),
        ended=np.empty(tasks, np.int64),
        begun=np.empty(tasks, np.int64),
        touched=np.empty(resources, np.int64),
        offered=np.empty(resources, np.int64),
        flows=np.empty(tasks, np.int64),
        links=np.empty(resources, np.int64),
        counts=np.zeros(COUNTERS, dtype=np.int64),
        timer_s=np.zeros(1),
        ready_s=np.full(tasks, np.nan),
        start_s=np.full(tasks, np.nan),
        end_s=np.full(tasks, np.nan),
    )
    state.counts[MIXED] = tasks > 0 and bool(np.any(graph.priority != graph.priority[0]))
    latest = np.full(int(graph.stream.max(initial=-1)) + 1, -1, dtype=np.int64)
    waits = np.array(graph.after_start, np.int64), np.array(graph.after, np.int64), np.array(graph.stream, np.int64)
    given = *uses_of, covered, *waits, latest
    if in_python:
        state, given = ReplayState(*map(as_lists, state)), tuple(map(as_lists, given))
    (_link.plain if in_python else _link.compiled)(state, *given)
    return state
