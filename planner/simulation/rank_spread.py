"""Spread: ranks do not compute equally long, and an iteration waits for the slowest of them.

The time that a rank computes in an iteration has a Gumbel distribution: a mean, and a tail towards long times, as noise
of the system has.  The largest of p such times has the same form, later by the standard deviation times
sqrt(6) / pi * ln p, so the expected delay grows with the logarithm of the ranks:

    ranks                    2      4      8      16     64     512
    wait, in deviations      0.54   1.08   1.62   2.16   3.24   4.86

Source:
    Gumbel, "Statistics of Extremes", 1958: the distribution is stable under maxima.
"""

import math
from dataclasses import replace

import numpy as np

from groundwork.array_types import Floats
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.conditions import Conditions
from planner.lowering.program import Program
from planner.simulation.execution_models import ProgramGraph

_SCALE = math.sqrt(6) / math.pi
"""Scale of a Gumbel distribution with standard deviation 1."""
_LEAST = 0.05
"""Least factor of a rank's time: no rank computes in no time."""


def late_deviations(ranks: int) -> float:
    """Return the expected delay of the slowest of several ranks behind the mean, in standard deviations of one.

    Source:
        Gumbel, "Statistics of Extremes", 1958.
    """
    return _SCALE * math.log(ranks)


def wait_share(program: Program) -> float:
    """Return the expected delay of the slowest rank, as a share of the time that a rank computes.

    Raises:
        ConfigError: No device of the cluster declares a spread.
    """
    Conditions(spread=True).check(program.cluster)
    used = np.unique(program.device[program.is_compute])
    ranks = len(used) if program.classes is None else int(program.classes.alike[used].sum())
    spread = program.cluster.devices.of_each(lambda device: device.step_spread)
    return late_deviations(ranks) * float(spread[used].max())


def drawn_factors(cluster: DeviceGraph, seed: int, iterations: int) -> Floats:
    """Draw the time of every rank in every iteration, relative to its mean.

    Args:
        cluster: Devices with their spreads.
        seed: The same seed draws the same run.
        iterations: Number of iterations.

    Returns:
        Shape (iterations, devices), with mean 1.

    Raises:
        ConfigError: No device declares a spread.
    """
    Conditions(spread=True).check(cluster)
    spread = cluster.devices.of_each(lambda device: device.step_spread)
    scale = spread * _SCALE
    delays = np.random.default_rng(seed).gumbel(-np.euler_gamma, 1.0, (iterations, len(spread)))
    return np.maximum(1.0 + scale * delays, _LEAST)


def with_slowest_rank(program: Program, program_graph: ProgramGraph) -> ProgramGraph:
    """Return a task graph in which all ranks compute as long as the slowest is expected to.

    Args:
        program: The program.
        program_graph: Its task graph.

    Raises:
        ConfigError: No device of the cluster declares a spread.
    """
    shape = len(program_graph.task_of), len(program.cluster.devices)
    return with_factors(program, program_graph, np.full(shape, 1.0 + wait_share(program)))


def with_factors(program: Program, program_graph: ProgramGraph, factors: Floats) -> ProgramGraph:
    """Return a task graph whose arithmetic takes other times, by iteration and device.

    Args:
        program: The program.
        program_graph: Its task graph.
        factors: Shape (iterations, devices).
    """
    compute = np.flatnonzero(program.is_compute)
    work = program_graph.graph.work.copy()
    work[program_graph.task_of[:, compute]] *= factors[:, program.device[compute]]
    return replace(program_graph, graph=replace(program_graph.graph, work=work))
