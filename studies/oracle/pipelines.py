"""Time of a pipeline by its stages and micro-batches one by one; row Layer of Table 1 uses the slowest of each."""

from collections.abc import Sequence

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.errors import InfeasiblePlanError
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import Layer
from planner.layouts.configurations import Configuration, space_of
from planner.search.pipeline_stages import stage_bounds
from planner.strategies.pipeline_schedule import PipelineSchedule
from studies.oracle import alpha_beta as wires
from studies.oracle.cases import OracleCase
from studies.oracle.layer_sizes import Sizes


def pipeline_makespan_s(
    forward_s: Floats,
    backward_s: Floats,
    update_s: Floats,
    transfer_s: Floats,
    segments: int,
    behind_s: Floats | None = None,
) -> float:
    """Return the time of an iteration of GPipe: all micro-batches forward, then all backward, the last first.

    A stage computes a micro-batch once it has arrived and the previous one is done; transfers share no link:

        stage 0   F0 F1 F2 .. .. B2 B1 B0 U
        stage 1   .. F0 F1 F2 B2 B1 B0 U

    Returns:
        Seconds until the last stage has updated.

    Source:
        Huang et al., "GPipe", NeurIPS 2019, Fig. 2c: with equal stages and free transfers (p + S - 1) (FW + BW) + WU.
    """
    ready, done, once = np.zeros(segments), [], np.ones(segments)
    for stage, seconds in enumerate(forward_s):
        ends = _ends(ready, seconds * once, 0.0)
        done.append(float(ends[-1]))
        ready = ends + transfer_s[stage] if stage < len(transfer_s) else ends
    finished, ready = 0.0, np.full(segments, done[-1])
    for stage in range(len(forward_s) - 1, -1, -1):
        ends = _ends(ready, backward_s[stage] * once, done[stage])
        finished = max(finished, float(ends[-1] + update_s[stage]))
        if stage:
            ready = ends + transfer_s[stage - 1] - (0.0 if behind_s is None else behind_s[stage])
    return finished


def _ends(ready: Floats, seconds: Floats, begin: float) -> Floats:
    """Return the end of each of some tasks that run one after another, each once it is ready.

    A task ends after the time of all up to it plus the latest start that it, or a task before it, would have needed.

    Args:
        ready: Earliest start of each task, shape (S,).
        seconds: Time of each task, shape (S,).
        begin: Earliest start of the first task.
    """
    until = np.cumsum(seconds)
    return np.asarray(until + np.maximum(np.maximum.accumulate(ready - until + seconds), begin))


def later_gradients_s(model: CostModel, case: OracleCase) -> Floats:
    """Return the time by which each layer's gradients take longer once they are added to those of a micro-batch before.

    Returns:
        Shape (layers,), with each layer on the first device.
    """
    priced, count = model.for_batch(case.batch // case.segments), len(model.cluster.devices)
    spaces = [space_of(layer, _whole(layer, (0,)), count) for layer in priced.graph.layers]
    return np.array([float(priced.compute_times.later_s(i, space)[0]) for i, space in enumerate(spaces)])


def planned_bounds(model: CostModel, case: OracleCase) -> Ints | None:
    """Return the bounds of the stages that a plan would have; None where none fits in memory.

    Returns:
        First layer of each stage, then the number of layers, shape (p + 1,).
    """
    priced = model.for_batch(case.batch)
    schedule = PipelineSchedule(kind="gpipe", micro_batches=case.segments, groups=tuple(range(case.p)))
    try:
        bounds = stage_bounds(priced, [(device,) for device in range(case.p)], _whole, schedule)
    except InfeasiblePlanError:
        return None
    return np.array(bounds, dtype=np.int64)


def _whole(layer: Layer, devices: Sequence[int]) -> Configuration:
    """Return the configuration of a layer without a split."""
    return Configuration(dict.fromkeys(layer.parallel_dims, 1), (devices[0],))


def boundaries_s(model: CostModel, sizes: Sizes, case: OracleCase, bounds: Ints) -> Floats:
    """Return the time of the largest tensor that each stage sends on, shape (p - 1,); others go in parallel.

    Source:
        Kahira et al., "An Oracle ...", Table 1, row Layer, communication.
    """
    micro_bytes = case.batch / case.segments * sizes.graph.element_bytes
    largest = np.zeros(case.p - 1)
    for u, edges in enumerate(sizes.graph.consumers):
        stage = int(np.searchsorted(bounds, u, side="right")) - 1
        if stage < case.p - 1 and any(edge.consumer >= bounds[stage + 1] for edge in edges):
            largest[stage] = max(largest[stage], sizes.y[u] * micro_bytes)
    alpha, beta = wires.boundaries(model.network, case.p, largest)
    return np.asarray(alpha + largest * beta)
