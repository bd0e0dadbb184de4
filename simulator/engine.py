"""Replaying a task graph: the one entrance to the engines."""

import sys
from importlib.util import find_spec

from hwprofiles.errors import ConfigError
from simulator import simpy_engine
from simulator.task_graph import Schedule, TaskGraph
from simulator.validation import validate

__all__ = ["ENGINES", "pick_engine", "simulate", "validate"]

ENGINES = ("auto", "compiled", "simpy")


def simulate(graph: TaskGraph, *, engine: str = "auto") -> Schedule:
    """Replay a task graph.

    The first use of the compiled engine on a machine compiles it, which is said on standard error.

    Args:
        graph: What to run, on what.
        engine: ``compiled``, ``simpy``, or ``auto``: compiled where numba is installed.

    Raises:
        ConfigError: The graph breaks a rule (see ``validate``) or there is no such engine.
    """
    engine = pick_engine(engine)
    validate(graph)
    if engine == "simpy":
        return simpy_engine.simulate(graph)
    from simulator import compiled_engine  # numba takes half a second to import

    if not compiled_engine.is_cached():
        print("compiling the simulation engine, once for this machine ...", file=sys.stderr, flush=True)
    return compiled_engine.simulate(graph)


def pick_engine(engine: str) -> str:
    """Name of the engine that ``simulate`` takes: ``compiled`` or ``simpy``."""
    if engine not in ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    installed = find_spec("numba") is not None
    if engine == "compiled" and not installed:
        raise ConfigError("engine compiled needs numba, which is not installed; simpy does not")
    return "compiled" if engine != "simpy" and installed else "simpy"
