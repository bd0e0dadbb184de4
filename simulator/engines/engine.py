"""The entry point to the engines: check a task graph, pick an engine and replay the graph."""

import math
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec

import numpy as np

from groundwork.errors import ConfigError
from simulator.compiled.jit import pays
from simulator.graph.graph_checks import check_all_ended, check_task_graph
from simulator.graph.memory_need import check_replay_memory, engine_bytes
from simulator.graph.task_graph import Schedule, TaskGraph

ENGINES = ("auto", "compiled", "simpy")


def simulate(
    graph: TaskGraph, *, engine: str = "auto", task_name: Callable[[int], str] = str, checked: bool = False
) -> Schedule:
    """Replay a task graph.

    Args:
        graph: Tasks and the resources that they use.
        engine: ``compiled``, ``simpy``, or ``auto``: compiled where numba is installed.
        task_name: Returns the name of a task in error messages, given its number.
        checked: True if ``check_task_graph`` has seen the graph, or the one iteration of which it is a repetition.

    Returns:
        The times at which each task was ready, started and ended.

    Raises:
        ConfigError: The graph breaks a rule (see ``check_task_graph`` and ``check_all_ended``) or there is no such
            engine.
        InfeasiblePlanError: The engine would take more memory than is free.
    """
    engine = pick_engine(engine)
    counts = {"tasks": graph.size, "uses": len(graph.use_resource), "dependencies": len(graph.after)}
    check_replay_memory(engine_bytes(**counts, engine=engine), f"replaying {graph.size:,} tasks with engine {engine}")
    if not checked:
        check_task_graph(graph, task_name=task_name)
    # The engines round relative to the time since the first start, whatever the clock of the graph says.
    earliest_s = graph.earliest_s
    if earliest_s > 0:
        graph = replace(graph, start_s=np.maximum(graph.start_s, earliest_s) - earliest_s)
    schedule = _replayed(graph, engine)
    check_all_ended(graph, schedule.end_s, task_name=task_name)
    if earliest_s == 0:
        return schedule
    if _is_late(earliest_s, graph):
        return replace(schedule, origin_s=earliest_s)
    return Schedule(
        ready_s=schedule.ready_s + earliest_s, start_s=schedule.start_s + earliest_s, end_s=schedule.end_s + earliest_s
    )


def _replayed(graph: TaskGraph, engine: str) -> Schedule:
    """Replay a valid task graph."""
    if engine == "simpy":
        from simulator.engines.simpy_engine import replay_simpy  # imported here: it takes a tenth of a second

        return replay_simpy(graph)
    from simulator.engines.compiled_engine import replay_compiled

    return replay_compiled(graph)


def _is_late(clock_s: float, graph: TaskGraph) -> bool:
    """Return whether the steps of a double at a time are more than 1e-9 of the shortest task or latency."""
    lengths_s = np.concatenate([graph.work / graph.alone_rates, graph.latency_s])
    return bool(np.spacing(clock_s) > 1e-9 * lengths_s.min(where=lengths_s > 0, initial=np.inf))


def prepare(engine: str = "auto") -> str:
    """Load an engine and return its name, so that a timed replay after it includes no compilation nor plain Python.

    Raises:
        ConfigError: There is no such engine.
    """
    engine = pick_engine(engine)
    if engine == "compiled":
        from simulator.engines.compiled_engine import replay_compiled

        pays(math.inf)
        replay_compiled(_empty_graph())
    return engine


def _empty_graph() -> TaskGraph:
    """Return a task graph without tasks and resources."""
    real, whole, start = np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
    return TaskGraph(
        resource_names=(),
        capacity=real,
        exclusive=np.zeros(0, dtype=bool),
        work=real,
        latency_s=real,
        start_s=real,
        rate_limit=real,
        priority=whole,
        stream=whole,
        use_start=start,
        use_resource=whole,
        use_weight=real,
        after_start=start,
        after=whole,
    )


def pick_engine(engine: str) -> str:
    """Return the name of the engine that ``simulate`` uses: ``compiled`` or ``simpy``.

    Raises:
        ConfigError: There is no such engine, or numba is missing that it needs.
    """
    if engine not in ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    installed = find_spec("numba") is not None
    if engine == "compiled" and not installed:
        raise ConfigError("engine compiled needs numba, which is not installed; simpy does not")
    return "compiled" if engine != "simpy" and installed else "simpy"
