"""Rows of the oracle's table: time, memory and cost of every case, with the layer times of all cases at once."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from groundwork.units import HOUR_S
from planner.cost.cost_model import CostModel
from planner.cost.library_rounds import library_collective_s
from planner.search.pipeline_stages import balanced
from planner.topology.network_routes import ClusterRoutes
from studies.oracle import alpha_beta as wires, forms
from studies.oracle.cases import OracleCase, OracleInputs
from studies.oracle.layer_sizes import Sizes
from studies.oracle.oracle_memory import case_memory_bytes, least_memory_bytes
from studies.oracle.oracle_request import OracleRequest
from studies.oracle.oracle_table import Limit, OracleRow
from studies.oracle.pipelines import boundaries_s, later_gradients_s, pipeline_makespan_s, planned_bounds
from studies.oracle.splits import Split, layer_times

Communication = dict[str, float]
"""Seconds of an iteration by the fields of ``OracleRow``: ``gradient_sync_s``, ``activations_s``, ``halo_s``."""


def communication_s(network: ClusterRoutes, sizes: Sizes, case: OracleCase, request: OracleRequest) -> Communication:
    """Return the communication of every strategy but the pipeline.

    Source: Kahira et al., "An Oracle ...", Table 1, second column.
    """
    delta = float(sizes.graph.element_bytes)
    samples = case.batch / case.p1  # samples of one group in a mini-batch
    parts = {"gradient_sync_s": 0.0, "activations_s": 0.0, "halo_s": 0.0}
    if case.p == 1:
        return parts
    everywhere = _replicated(sizes, case.kind)
    if everywhere is not None:
        replicas = wires.rows(case.p, case.p)
        parts["gradient_sync_s"] += _gradients(network, sizes, replicas, everywhere, 1.0, request)
    if case.p1 > 1 and case.p2 > 1:  # the layers split inside groups: the same share in every group is a replica
        shared = np.ones(len(sizes.y), dtype=bool) if everywhere is None else ~everywhere
        replicas = wires.columns(case.p, case.p2)
        parts["gradient_sync_s"] += _gradients(network, sizes, replicas, shared, 1.0 / case.p2, request)
    if case.p2 > 1:
        groups = wires.rows(case.p, case.p2)
        parts["activations_s"] = _activations(network, sizes, case.kind, groups, samples * delta, request)
        if case.kind == "spatial":
            parts["halo_s"] = _halos(network, sizes, case.grid, groups, samples * delta, request)
    return parts


def _replicated(sizes: Sizes, kind: str) -> Bools | None:
    """Return the layers whose parameters every device holds; None where there are none."""
    if kind == "data":
        return np.ones(len(sizes.y), dtype=bool)
    return ~sizes.flat if kind == "spatial" else None


def _gradients(
    network: ClusterRoutes, sizes: Sizes, groups: Ints, layers: Bools, share: float, request: OracleRequest
) -> float:
    """Return the time of a ring all-reduce of the layers' gradients in all groups at once.

    Gradients of biases are sent too, which the table leaves out.

    Args:
        network: Routes of the cluster.
        sizes: Sizes of the network's layers.
        groups: Devices of each group of replicas, shape (groups, replicas).
        layers: Layers whose gradients are reduced, shape (G,).
        share: Share of each gradient that a device holds.
        request: ``gradients``: all in one message, or a message a layer.
    """
    graph, count = sizes.graph, groups.shape[1]
    messages = (sizes.w + sizes.b)[layers] * share
    if request.gradients == "one":
        messages = messages.sum(keepdims=True)
    wire = wires.ring(network, groups)
    size = messages * graph.element_bytes
    return float(forms.gradient_all_reduce_s(count, size, wire.alpha_s(size / count), wire.beta_s_per_byte))


def _activations(
    network: ClusterRoutes, sizes: Sizes, kind: str, groups: Ints, sample_bytes: float, request: OracleRequest
) -> float:
    """Return the time of Filter's all-gathers or Channel's all-reduces, and of Spatial's before layers without grid.

    Channel reduces the outputs of the layers that read a part of their input channels: all with weights but the
    first.  The table prints the sum for both rows to G - 1, the outputs of all layers but the last.
    """
    p = groups.shape[1]
    chosen = {"filter": sizes.gathered, "channel": sizes.mixing & ~sizes.first, "spatial": sizes.gathered_flat}.get(
        kind
    )
    if chosen is None:
        return 0.0
    rings = request.activations == "rings"
    wire = (wires.ring if rings else wires.direct)(network, groups)
    size = (sizes.delivered if kind == "filter" and not rings else sizes.y[chosen]) * sample_bytes
    if kind == "channel" and not rings:
        # A reduce-scatter of the tensors, and an all-gather of their gradients, as programs run them.
        if network.library is None:
            return _collectives_s(wires.ring(network, groups), size, groups.shape[1], 2, rings=True)
        devices = tuple(groups[0].tolist())
        pair = (library_collective_s(network, name, devices, size).sum() for name in ("reduce-scatter", "all-gather"))
        return float(sum(pair))
    total = _collectives_s(wire, size, p, 3, rings=rings)
    if kind == "spatial":
        # a part of the channels from a part of the positions: 1 / p^2 from each to each, forward and back
        total += _collectives_s(wire, sizes.y[sizes.regrouped] * sample_bytes / p, p, 2, rings=rings)
    return total


def _collectives_s(wire: wires.Wire, size: Floats, p: int, passes: int, *, rings: bool) -> float:
    """Return the time of the collectives of some tensors, in rings or with all messages of a tensor at once."""
    alpha = wire.alpha_s(size / p)
    if rings:
        return float(forms.activation_collectives_s(p, size, alpha, wire.beta_s_per_byte, passes=passes))
    return float(2 * (alpha + size / p * wire.beta_s_per_byte).sum())


def _halos(
    network: ClusterRoutes,
    sizes: Sizes,
    grid: tuple[int, ...],
    groups: Ints,
    sample_bytes: float,
    request: OracleRequest,
) -> float:
    """Return the time of the halo exchange between neighbouring parts of the grid, forward and backward."""
    forward, backward = sizes.halos(grid)
    wire = wires.neighbours(network, groups, grid)
    if request.activations == "rings":
        # halo() is for one of two neighbours, and beta for one neighbour after the other
        halo_x, halo_dy = forward / 2 * sample_bytes, backward / 2 * sample_bytes
        alpha = wire.alpha_s(np.maximum(halo_x, halo_dy))
        return float(forms.halo_exchange_s(halo_x, halo_dy, alpha, wire.beta_s_per_byte))
    trained = np.array([sizes.graph.has_phase(i, "activation_gradient") for i in range(len(sizes.y))])
    size = forward * sample_bytes
    once = np.where(size > 0, wire.alpha_s(size / 2) + size * wire.beta_s_per_byte, 0.0)
    return float((once * (1 + trained)).sum())


def stage_transfers_s(network: ClusterRoutes, sizes: Sizes, case: OracleCase, bounds: Ints) -> float:
    """Return the time of the transfers between the stages of a pipeline.

    Args:
        network: Routes of the cluster.
        sizes: Sizes of the network's layers.
        case: The case.
        bounds: First layer of each stage, then the number of layers, shape (p + 1,).

    Source: Kahira et al., "An Oracle ...", Table 1, row Layer.
    """
    micro_bytes = case.batch / case.segments * sizes.graph.element_bytes
    size = sizes.crossing[bounds[1:-1] - 1] * micro_bytes
    alpha, beta = wires.boundaries(network, case.p, size)
    return float(forms.pipeline_transfer_s(case.p, case.segments, size, alpha, beta))


class _LayerTimes(NamedTuple):
    """Times of the layers of one case, seconds, shape (G,) each; of one micro-batch in a pipeline."""

    forward_s: Floats
    """FW."""
    backward_s: Floats
    """BW: activation gradient and weight gradient together."""
    update_s: Floats
    """WU."""
    weight_gradient_s: Floats
    """Weight gradient, a part of BW."""


def project_rows(
    model: CostModel, inputs: OracleInputs, cases: Sequence[OracleCase], limits: Mapping[str, Limit], gamma: float
) -> list[OracleRow]:
    """Apply the closed forms to all cases.

    Source:
        Kahira et al., "An Oracle ...", Table 1.
    """
    budget = inputs.request.budget_gpu_hours
    times = layer_times(model, inputs.sizes, [_timed_split(case, inputs.request) for case in cases])
    rows = []
    for c, case in enumerate(cases):
        shares = _shares(case, inputs, {phase: row[c] for phase, row in times.items()})
        communication: dict[str, Any] = dict.fromkeys(("gradient_sync_s", "activations_s", "halo_s", "pipeline_s"), 0.0)
        bounds = None
        if case.strategy == "layer":
            compute_s, update_s, communication["pipeline_s"], bounds = _pipeline(
                model, inputs.sizes, case, shares, one_by_one=inputs.request.pipeline == "stages" and case.p > 1
            )
        else:
            update_s = float(shares.update_s.sum())
            compute_s = float(forms.computation_s(shares.forward_s, shares.backward_s, shares.update_s))
            communication |= communication_s(model.network, inputs.sizes, case, inputs.request)
        memory_bytes = case_memory_bytes(inputs.sizes, case, inputs.request, gamma, bounds)
        sent_s = sum(communication.values())
        iteration_s = compute_s + sent_s
        epoch_s = inputs.samples / case.batch * iteration_s
        gpu_hours = case.p * epoch_s * inputs.request.epochs / HOUR_S
        limit = limits[case.strategy]
        rows.append(
            OracleRow(
                strategy=case.strategy,
                devices=case.p,
                degrees=case.degrees,
                batch=case.batch,
                forward_backward_s=compute_s - update_s,
                update_s=update_s,
                **communication,
                compute_s=compute_s,
                communication_s=sent_s,
                iteration_s=iteration_s,
                epoch_s=epoch_s,
                samples_per_s=case.batch / iteration_s,
                memory_bytes=memory_bytes,
                fits=memory_bytes <= least_memory_bytes(model.cluster, case.p),
                limit=limit.devices,
                limit_reason=limit.reason,
                gpu_hours=gpu_hours,
                within_budget=gpu_hours <= (math.inf if budget is None else budget),
            )
        )
    return rows


def _timed_split(case: OracleCase, request: OracleRequest) -> Split:
    """Return the split whose times are looked up: with ideal scaling the whole mini-batch on one device."""
    if request.compute == "parts":
        return case.split
    return Split(devices=case.p, samples=case.batch)


def _shares(case: OracleCase, inputs: OracleInputs, times: Mapping[str, Floats]) -> _LayerTimes:
    """Return the times of a device's share of every layer, from the times by phase."""
    forward, update, gradient = times["forward"], times["update"], times["weight_gradient"]
    backward = times["activation_gradient"] + gradient
    if inputs.request.compute == "ideal":
        over = case.segments if case.strategy == "layer" else case.p
        forward, backward, gradient = forward / over, backward / over, gradient / over
        if case.strategy in ("filter", "channel", "data+filter"):
            update = update / case.p2
        elif case.grid:
            update = update / np.where(inputs.sizes.flat, case.p2, 1)
    return _LayerTimes(forward, backward, update, gradient)


def _pipeline(
    model: CostModel, sizes: Sizes, case: OracleCase, shares: _LayerTimes, *, one_by_one: bool
) -> tuple[float, float, float, Ints]:
    """Return computation, update and communication of a pipeline, and the bounds of its stages.

    With stages one by one, communication is what an iteration takes longer than with free transfers.

    Args:
        model: Prices of the network on the cluster.
        sizes: Sizes of the network's layers.
        case: The case.
        shares: Times of the layers for a micro-batch.
        one_by_one: Follow every micro-batch through the stages of a plan, in place of the table's form.
    """
    planned = planned_bounds(model, case) if one_by_one else None
    bounds = balanced(shares.forward_s + shares.backward_s, case.p) if planned is None else planned
    forward, backward, update = (np.add.reduceat(row, bounds[:-1]) for row in shares[:3])
    update_s = float(update.max())
    if not one_by_one:
        compute_s = float(forms.pipeline_computation_s(forward, backward, update, case.segments))
        return compute_s, update_s, stage_transfers_s(model.network, sizes, case, bounds), bounds
    sent_s = boundaries_s(model, sizes, case, bounds)
    layer_s, later = later_gradients_s(model, case), np.arange(case.segments) > 0
    backward_s = backward[:, None] + np.add.reduceat(layer_s, bounds[:-1])[:, None] * later
    behind_s = (shares.weight_gradient_s[:, None] + layer_s[:, None] * later)[bounds[:-1]]
    free_s, all_s = (
        pipeline_makespan_s(forward, backward_s, update, transfer_s, case.segments, behind_s)
        for transfer_s in (np.zeros_like(sent_s), sent_s)
    )
    return free_s, update_s, all_s - free_s, bounds
