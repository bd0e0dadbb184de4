"""Both engines: hand-worked cases, laws that every schedule obeys, and agreement with each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from task_graphs import task_graph, task_graphs

from groundwork.errors import ConfigError
from simulator.engines import compiled_engine
from simulator.engines.engine import ENGINES, pick_engine, simulate
from simulator.timelines.timeline import alone_s, busiest_resource, longest_path_s

INF = np.inf
NAMES = ("ready_s", "start_s", "end_s")


def transfer(work, *links, weight=1.0, **options):
    return {"work": work, "uses": dict.fromkeys(links, weight), **options}


# Capacities, tasks, exclusive resources, (start, end) of each task.  Worked by hand.
CASES = {
    "alone": ([2.0], [transfer(3, 0)], (), [(0, 1.5)]),
    "tightest link": ([2.0, 1.0], [transfer(3, 0, 1)], (), [(0, 3)]),
    # Half each until the shorter ends at 2; the other has 1 left and the whole link.
    "two share": ([1.0], [transfer(1, 0), transfer(2, 0)], (), [(0, 2), (0, 3)]),
    # Same rate r for both: 2 r + r = 3.
    "weights": ([3.0], [transfer(2, 0, weight=2.0), transfer(2, 0)], (), [(0, 2), (0, 2)]),
    "rate limit leaves the rest": ([1.0], [transfer(1, 0, rate_limit=0.2), transfer(0.8, 0)], (), [(0, 5), (0, 1)]),
    "no uses": (
        [],
        [{"work": 3.0}, {"work": 3.0, "rate_limit": 0.5}, {"work": 3.0, "rate_limit": 2.0}],
        (),
        [(0, 3), (0, 6), (0, 3)],
    ),
    "priority": ([1.0], [transfer(1, 0), transfer(2, 0, priority=1)], (), [(0, 3), (0, 2)]),
    "lower class shares what is left": (
        [1.0],
        [transfer(3, 0, priority=1, rate_limit=0.5), transfer(1, 0), transfer(1, 0)],
        (),
        [(0, 6), (0, 4), (0, 4)],
    ),
    # 0.6 + 0.6 > 1: each at 1 / 1.2; alone either runs at 1.
    # 0.6 + 0.6 > 1: each at 1 / 1.2.
    "occupancy": ([1.0], [transfer(1, 0, weight=0.6, rate_limit=1.0)] * 2, (), [(0, 1.2), (0, 1.2)]),
    "small kernels side by side": (
        [1.0],
        [transfer(1, 0, weight=0.5, rate_limit=1.0), transfer(2, 0, weight=0.5, rate_limit=1.0)],
        (),
        [(0, 1), (0, 2)],
    ),
    "latency uses nothing": ([1.0], [transfer(1, 0, latency_s=1.0), transfer(1, 0)], (), [(1, 2), (0, 1)]),
    "dependency, then latency": (
        [1.0],
        [transfer(1, 0), transfer(1, 0, after=[0], latency_s=0.5)],
        (),
        [(0, 1), (1.5, 2.5)],
    ),
    "zero work passes": (
        [1.0],
        [transfer(0, 0, latency_s=0.5), transfer(1, 0, after=[0])],
        (),
        [(0.5, 0.5), (0.5, 1.5)],
    ),
    "start": ([1.0], [transfer(1, 0, start_s=2.0), transfer(3, 0)], (), [(2, 4), (0, 4)]),
    "stream in order of ids": (
        [],
        [{"work": 1.0, "stream": 0, "after": [2]}, {"work": 1.0, "stream": 0}, {"work": 5.0}],
        (),
        [(5, 6), (6, 7), (0, 5)],
    ),
    "exclusive": ([1.0], [transfer(1, 0), transfer(1, 0), transfer(1, 0)], (0,), [(0, 1), (1, 2), (2, 3)]),
    # The later id is ready first, though its latency ends last.
    "exclusive, by readiness": (
        [1.0],
        [transfer(2, 0), transfer(1, 0, start_s=1.0), transfer(1, 0, start_s=0.5, latency_s=1.0)],
        (0,),
        [(0, 2), (3, 4), (2, 3)],
    ),
    # Task 1, before it in the queue, waits for another port too: task 2 takes the one that is free.
    "a free port does not wait for one who could not begin": (
        [1.0, 1.0],
        [transfer(2, 0), transfer(1, 0, 1), transfer(1, 1)],
        (0, 1),
        [(0, 2), (2, 3), (0, 1)],
    ),
    # Flow 0 crosses both links; the first is full at 1/3 each, so flow 3 gets the other 2/3.
    "max-min": (
        [1.0, 1.0],
        [transfer(1, 0, 1), transfer(1, 0), transfer(1, 0), transfer(2, 1)],
        (),
        [(0, 3), (0, 3), (0, 3), (0, 3)],
    ),
}


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace(" ", "-"))
def test_hand_worked_case(case, engine):
    capacity, tasks, exclusive, expected = CASES[case]

    schedule = simulate(task_graph(capacity, tasks, exclusive=exclusive), engine=engine)

    assert np.stack([schedule.start_s, schedule.end_s], axis=1) == pytest.approx(np.array(expected, float), rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(graph=task_graphs())
def test_engines_agree_on_every_task(graph):
    clear, fast = simulate(graph, engine="simpy"), simulate(graph, engine="compiled")

    for name in NAMES:
        np.testing.assert_allclose(getattr(fast, name), getattr(clear, name), rtol=1e-9, atol=0, err_msg=name)


@settings(max_examples=10, deadline=None)
@given(graph=task_graphs(max_tasks=90, max_resources=20, priorities=False, exclusive=False))
def test_engines_agree_where_many_share(graph):
    """Large enough that the compiled engine solves parts and stops short of the rest."""
    clear, fast = simulate(graph, engine="simpy"), simulate(graph, engine="compiled")

    np.testing.assert_allclose(fast.end_s, clear.end_s, rtol=1e-9, atol=0)


@pytest.mark.parametrize("seed", range(6))
def test_engines_agree_where_many_wait_for_ports(seed):
    """Each of 120 transfers holds up to three of six ports: waiting ones move from queue to queue many times."""
    rng = np.random.default_rng(seed)
    tasks = [
        {
            "work": float(rng.integers(1, 5)) if seed % 2 else float(rng.uniform(1, 5)),
            "uses": dict.fromkeys(rng.choice(8, rng.integers(1, 4), replace=False).tolist(), 1.0),
            "latency_s": float(rng.choice([0.0, 0.5, 2.0])),
            "start_s": float(rng.integers(0, 20)),
            "after": rng.choice(i, 1).tolist() if i and rng.random() < 0.5 else (),
        }
        for i in range(120)
    ]
    graph = task_graph([1.0] * 8, tasks, exclusive=range(6))
    clear, fast = simulate(graph, engine="simpy"), simulate(graph, engine="compiled")

    for name in NAMES:
        np.testing.assert_allclose(getattr(fast, name), getattr(clear, name), rtol=1e-9, atol=0, err_msg=name)


@settings(max_examples=25, deadline=None)
@given(graph=task_graphs())
def test_schedules_obey_the_laws(graph):
    """Order, exclusiveness, no task faster than alone, no resource beyond its capacity, both lower bounds."""
    schedule = simulate(graph)
    slack_s = 1e-9 * schedule.makespan_s
    assert np.all(schedule.ready_s >= graph.start_s - slack_s)
    assert np.all(schedule.start_s >= schedule.ready_s + graph.latency_s - slack_s)
    assert np.all(schedule.end_s >= schedule.start_s + alone_s(graph) - slack_s)
    for task in range(graph.size):
        for other in graph.after[graph.after_start[task] : graph.after_start[task + 1]]:
            assert schedule.ready_s[task] >= schedule.end_s[other]
    for stream in set(graph.stream.tolist()) - {-1}:
        members = np.flatnonzero(graph.stream == stream)
        assert np.all(schedule.ready_s[members[1:]] >= schedule.end_s[members[:-1]])
    owner = np.repeat(np.arange(graph.size), np.diff(graph.use_start))
    for resource in range(len(graph.capacity)):
        users = owner[(graph.use_resource == resource) & (graph.work[owner] > 0)]
        users = users[np.argsort(schedule.start_s[users])]
        if graph.exclusive[resource]:
            assert np.all(schedule.start_s[users[1:]] >= schedule.end_s[users[:-1]])
    assert schedule.makespan_s >= longest_path_s(graph) - slack_s
    assert schedule.makespan_s >= busiest_resource(graph)[1] - slack_s


@settings(max_examples=25, deadline=None)
@given(graph=task_graphs())
def test_two_runs_are_the_same_to_the_last_bit(graph):
    """Of the compiled engine also one in plain Python, as small graphs get before numba is loaded."""
    for engine in ("simpy", "compiled"):
        first, second = simulate(graph, engine=engine), simulate(graph, engine=engine)
        for name in NAMES:
            assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_engine, "pays", lambda plain_s: False)
        patch.setattr(compiled_engine.replay_kernel, "compiled", None)
        third = simulate(graph, engine="compiled")
    for name in NAMES:
        assert getattr(first, name).tobytes() == getattr(third, name).tobytes()


def test_plain_python_gives_up_where_all_share_one_resource():
    """Each of 300 ends changes the rates of all that are left."""
    graph = task_graph([1.0], [transfer(1.0 + i / 300, 0) for i in range(300)])
    assert compiled_engine.replay_plain(graph, 0.0) is None
    assert compiled_engine.replay_plain(graph, np.inf).end_s.tolist() == simulate(graph).end_s.tolist()


def test_what_memory_held_before_does_not_show():
    """The compiled engine's scratch arrays may hold anything: zeros, ones, or NaN and -1."""
    random = np.random.default_rng(0)
    start_s, work, weight = 20 * random.random(300), random.random(300), 0.5 + random.random(300)
    links = [random.permutation(12)[:3] for _ in range(300)]
    tasks = [transfer(work[i], *links[i], weight=weight[i], start_s=start_s[i]) for i in range(300)]
    graph = task_graph(0.5 + random.random(12), tasks)
    made, times = np.empty, []
    for byte in (0, 1, 255):

        def soiled(*arguments, byte=byte):
            array = made(*arguments)
            array.view(np.uint8)[...] = byte
            return array

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(np, "empty", soiled)
            schedule = simulate(graph, engine="compiled")
        times.append([getattr(schedule, name).tobytes() for name in NAMES])

    assert times[0] == times[1] == times[2]


@pytest.mark.parametrize(("devices", "engine"), [(2, "simpy"), (8, "simpy"), (8, "compiled"), (64, "compiled")])
def test_ring_all_reduce_closed_form(devices, engine):
    """Equal free links: 2 (N - 1) (alpha + S / (N B)); Thakur et al., IJHPCA 2005, Sec. 4.5."""
    latency_s, total_bytes, bytes_per_s = 5e-6, 1e8, 12.5e9
    tasks = [
        transfer(
            total_bytes / devices,
            rank,
            latency_s=latency_s,
            after=[(step - 1) * devices + (rank - 1) % devices] if step else [],
        )
        for step in range(2 * (devices - 1))
        for rank in range(devices)
    ]

    schedule = simulate(task_graph([bytes_per_s] * devices, tasks), engine=engine)

    expected_s = 2 * (devices - 1) * (latency_s + total_bytes / (devices * bytes_per_s))
    assert schedule.makespan_s == pytest.approx(expected_s, rel=1e-10)


def test_many_equal_flows_end_together():
    """Every pair of 24 devices at once: each device sends and receives 24 flows at 1/24 of its links."""
    devices = 24
    tasks = [transfer(1.0, source, devices + target) for source in range(devices) for target in range(devices)]

    schedule = simulate(task_graph([1.0] * (2 * devices), tasks))

    assert set(schedule.end_s) == {schedule.makespan_s}
    assert schedule.makespan_s == pytest.approx(devices, rel=1e-12)


def test_long_replays_return_in_between(monkeypatch):
    """So that a signal is heard while 50,000 tasks, each after the one before, are replayed: after 20,000 at most."""
    kernel, calls = compiled_engine.replay_kernel.compiled, []

    class Counted:
        signatures = kernel.signatures

        def __call__(self, *given):
            calls.append(given)
            return kernel(*given)

    monkeypatch.setattr(compiled_engine.replay_kernel, "compiled", Counted())
    graph = task_graph([1.0], [transfer(1, 0, after=[i - 1] if i else []) for i in range(50_000)])
    assert simulate(graph, engine="compiled").end_s.tolist() == list(range(1, 50_001))
    assert len(calls) == 3


def test_nothing_to_do():
    for engine in ("simpy", "compiled"):
        assert simulate(task_graph([1.0], []), engine=engine).makespan_s == 0.0


def test_engine_must_exist():
    with pytest.raises(ConfigError, match="engine must be one of auto, compiled, simpy, got 'fast'"):
        simulate(task_graph([], []), engine="fast")


def test_simpy_serves_without_numba(monkeypatch):
    monkeypatch.setattr("simulator.engines.engine.find_spec", lambda name: None)

    assert pick_engine("auto") == "simpy"
    with pytest.raises(ConfigError, match="numba"):
        pick_engine("compiled")


GOOD = transfer(1.0, 0)
BAD = {
    "negative work": ([1.0], [GOOD, {**GOOD, "work": -1.0}], "work of task 1 must be finite and >= 0, got -1.0"),
    "NaN work": ([1.0], [{**GOOD, "work": np.nan}], "work of task 0 must be finite and >= 0, got nan"),
    "latency": ([1.0], [{**GOOD, "latency_s": INF}], "latency_s of task 0 must be finite"),
    "start": ([1.0], [{**GOOD, "start_s": -0.5}], "start_s of task 0 must be finite and >= 0, got -0.5"),
    "rate limit": ([1.0], [{**GOOD, "rate_limit": 0.0}], "rate_limit of task 0 must be > 0, or the task can never run"),
    "capacity": ([1.0, 0.0], [GOOD], "capacity of resource 1 must be finite and > 0, got 0.0"),
    "weight": ([1.0], [transfer(1.0, 0, weight=0.0)], "use_weight of use 0 must be finite and > 0, got 0.0"),
    "unknown resource": ([1.0], [transfer(1.0, 3)], "use_resource of use 0 must be in 0..0, got 3"),
    "unknown task": ([1.0], [{**GOOD, "after": [7]}], "after of dependency 0 must be in 0..0, got 7"),
    "cycle": ([1.0], [GOOD, {"after": [3]}, {"after": [1]}, {"after": [2, 0]}], "got the cycle 1 -> 3 -> 2 -> 1"),
    "itself": ([1.0], [{"after": [0], "start_s": 1.0}], "got the cycle 0 -> 0"),
    "stream against dependency": ([], [{"stream": 5, "after": [1]}, {"stream": 5}], "got the cycle 0 -> 1 -> 0"),
    "long cycle": ([], [{"after": [(i + 1) % 40]} for i in range(40)], r"0 -> 1 -> .* -> \(29 more\) -> 0"),
}


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.replace(" ", "-"))
def test_bad_graph_is_refused(case):
    capacity, tasks, message = BAD[case]

    for engine in ENGINES:
        with pytest.raises(ConfigError, match=message):
            simulate(task_graph(capacity, tasks), engine=engine)


def test_resource_is_named_once():
    graph = task_graph([1.0, 1.0], [transfer(1.0, 0, 1)])
    graph.use_resource[1] = 0

    with pytest.raises(ConfigError, match="task 0 must name a resource once, got 'link0' twice"):
        simulate(graph)


def test_dependencies_may_point_forward():
    assert simulate(task_graph([], [{"after": [1]}, {"work": 2.0}])).end_s.tolist() == [3.0, 2.0]
