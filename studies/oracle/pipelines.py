"""A pipeline by its stages and micro-batches one by one: what row Layer of Table 1 rounds to the slowest of each."""

from collections.abc import Sequence

import numpy as np

from hwprofiles import Floats, InfeasiblePlanError, Ints
from planner.cost import CostModel
from planner.graph import Layer
from planner.parallel import Configuration, PipelineSchedule
from planner.search import stage_bounds
from studies.oracle import alpha_beta as wires
from studies.oracle.cases import OracleCase
from studies.oracle.layer_sizes import Sizes

__all__ = ["boundaries_s", "pipeline_makespan_s", "planned_bounds"]


def pipeline_makespan_s(
    forward_s: Floats, backward_s: Floats, update_s: Floats, transfer_s: Floats, segments: int,
    behind_s: Floats | None = None,
) -> float:  # fmt: skip
    """Time of an iteration of GPipe: all micro-batches forward, then all back, the last first.

    A stage takes a micro-batch once it has come and the one before it is done; transfers meet nobody.

    Args:
        forward_s, backward_s, update_s: Of each of p stages, for a micro-batch but for the update, shape (p,).
        transfer_s: From each stage to the next, and of the gradient back, shape (p - 1,).
        segments: Micro-batches, >= 1.
        behind_s: What a stage computes of ``backward_s`` after the gradient that it hands back, so that this does not
            wait for it: the weight gradient of its first layer; shape (p,).  None: nothing.

    Returns:
        Seconds until the last stage has updated.

    Source:
        Huang et al., "GPipe", NeurIPS 2019, Fig. 2c: with equal stages and free transfers (p + S - 1) (FW + BW) + WU.
    """
    turns, ready, done = np.arange(segments), np.zeros(segments), []
    for stage, seconds in enumerate(forward_s.tolist()):
        ends = _ends(ready, seconds, turns, 0.0)
        done.append(float(ends[-1]))
        ready = ends + transfer_s[stage] if stage < len(transfer_s) else ends
    finished, ready = 0.0, np.full(segments, done[-1])
    for stage in range(len(forward_s) - 1, -1, -1):
        ends = _ends(ready, float(backward_s[stage]), turns, done[stage])
        finished = max(finished, float(ends[-1] + update_s[stage]))
        if stage:
            ready = ends + transfer_s[stage - 1] - (0.0 if behind_s is None else behind_s[stage])
    return finished


def _ends(ready: Floats, seconds: float, turns: Ints, begin: float) -> Floats:
    """End of each of equally long pieces of work that are taken in turn, each once it is ready."""
    return np.asarray(seconds * (turns + 1) + np.maximum(np.maximum.accumulate(ready - seconds * turns), begin))


def planned_bounds(model: CostModel, case: OracleCase) -> Ints | None:
    """Bounds of the stages that a plan would have; None where none fits in memory."""
    priced = model.for_batch(case.batch)
    schedule = PipelineSchedule(kind="gpipe", micro_batches=case.segments, groups=tuple(range(case.p)))
    try:
        bounds = stage_bounds(priced, [(device,) for device in range(case.p)], _whole, schedule)
    except InfeasiblePlanError:
        return None
    return np.array(bounds, dtype=np.int64)


def _whole(layer: Layer, devices: Sequence[int]) -> Configuration:
    return Configuration(dict.fromkeys(layer.parallel_dims, 1), (devices[0],))


def boundaries_s(model: CostModel, sizes: Sizes, case: OracleCase, bounds: Ints) -> Floats:
    """Time of the largest tensor that each stage hands on, shape (p - 1,); tensors go side by side."""
    micro_bytes = case.batch / case.segments * sizes.graph.element_bytes
    largest = np.zeros(case.p - 1)
    for u, edges in enumerate(sizes.graph.consumers):
        stage = int(np.searchsorted(bounds, u, side="right")) - 1
        if stage < case.p - 1 and any(edge.consumer >= bounds[stage + 1] for edge in edges):
            largest[stage] = max(largest[stage], sizes.y[u] * micro_bytes)
    alpha, beta = wires.boundaries(model.network, case.p, largest)
    return np.asarray(alpha + largest * beta)
