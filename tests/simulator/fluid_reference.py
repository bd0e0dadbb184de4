"""A third simulator, the shortest that can be: DESIGN.md, "What the engine means", word by word, in exact fractions.

No tolerance, no heap, no arrays: what happens at one instant is equal, not nearly equal.  It was written
from that text alone, so what it shares with the engines is the meaning.
"""

from fractions import Fraction
from math import inf

from simulator.graph.task_graph import Schedule


def exact(number):
    """The decimal that a float prints as: 0.1 is a tenth."""
    return number if number == inf else Fraction(repr(float(number)))


def reference_schedule(graph):
    """Replay; times as fractions."""
    size = graph.size

    def row(start, values, i):
        return values[start[i] : start[i + 1]].tolist()

    capacity = [exact(c) for c in graph.capacity]
    uses = [
        dict(
            zip(
                row(graph.use_start, graph.use_resource, i),
                map(exact, row(graph.use_start, graph.use_weight, i)),
                strict=True,
            )
        )
        for i in range(size)
    ]
    before = [set(row(graph.after_start, graph.after, i)) for i in range(size)]
    for i in range(size):
        if graph.stream[i] >= 0:
            before[i] |= {j for j in range(i) if graph.stream[j] == graph.stream[i]}
    ports = [{r for r in uses[i] if graph.exclusive[r]} for i in range(size)]
    limit = [exact(x) if uses[i] else min(exact(x), Fraction(1)) for i, x in enumerate(graph.rate_limit)]
    earliest, latency, left = ([exact(x) for x in c] for c in (graph.start_s, graph.latency_s, graph.work))
    ready, start, end = ([None] * size for _ in range(3))
    working, now = set(), Fraction(0)

    while None in end:
        settled = False
        while not settled:  # everything that happens now, to the last consequence
            settled = True
            for i in range(size):
                if ready[i] is None and earliest[i] <= now and all(end[j] is not None for j in before[i]):
                    ready[i], settled = now, False
                if ready[i] is not None and end[i] is None and ready[i] + latency[i] <= now and left[i] == 0:
                    start[i], end[i], settled = now if start[i] is None else start[i], now, False
                    working.discard(i)
        waiting = [i for i in range(size) if ready[i] is not None and start[i] is None and ready[i] + latency[i] <= now]
        for i in sorted(waiting, key=lambda i: (ready[i], i)):
            if not any(ports[i] & ports[j] for j in working):
                start[i] = now
                working.add(i)
        rate = shares(working, capacity, uses, limit, graph.priority)
        moments = [now + left[i] / rate[i] for i in working if rate[i] > 0]
        for i in range(size):
            if ready[i] is None and all(end[j] is not None for j in before[i]):
                moments.append(earliest[i])
            elif ready[i] is not None and ready[i] + latency[i] > now:
                moments.append(ready[i] + latency[i])
        if not moments:
            break
        then = min(moments)
        for i in working:
            left[i] -= rate[i] * (then - now)
        now = then
    return Schedule(ready_s=ready, start_s=start, end_s=end)


def shares(working, capacity, uses, limit, priority):
    """Higher classes first; in a class all rates rise together until a limit or a full resource stops one."""
    rate = dict.fromkeys(working, Fraction(0))
    for level in sorted({int(priority[i]) for i in working}, reverse=True):
        rising = {i for i in working if priority[i] == level}
        while rising:
            room = {i: limit[i] - rate[i] for i in rising}
            for r in {r for i in rising for r in uses[i]}:
                free = capacity[r] - sum(uses[i][r] * rate[i] for i in working if r in uses[i])
                takers = [i for i in rising if r in uses[i]]
                for i in takers:
                    room[i] = min(room[i], free / sum(uses[j][r] for j in takers))
            rise = min(room.values())
            for i in rising:
                rate[i] += rise
            rising = {i for i in rising if room[i] > rise}
    return rate
