"""Communication and memory of one case by the forms of Table 1."""

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Floats, Ints
from planner.topology import ClusterRoutes
from studies.oracle import alpha_beta as wires, forms
from studies.oracle.cases import HYBRIDS, OracleCase
from studies.oracle.layer_sizes import Sizes
from studies.oracle.oracle_options import OracleOptions

__all__ = ["Communication", "case_memory_bytes", "communication_s", "stage_costs"]

Communication = dict[str, float]
"""Seconds of an iteration by part: ``gradient_exchange_s``, ``activations_s``, ``halo_s``."""


def communication_s(network: ClusterRoutes, sizes: Sizes, case: OracleCase, options: OracleOptions) -> Communication:
    """Communication of every strategy but the pipeline."""
    kind = HYBRIDS.get(case.strategy, case.strategy)
    delta = float(sizes.graph.element_bytes)
    samples = case.batch / case.p1  # of a group
    parts = {"gradient_exchange_s": 0.0, "activations_s": 0.0, "halo_s": 0.0}
    if case.p == 1:
        return parts
    whole = np.ones(len(sizes.y), dtype=bool) if kind == "data" else ~sizes.flat if kind == "spatial" else None
    if whole is not None:
        replicas = wires.rows(case.p, case.p)
        parts["gradient_exchange_s"] += _gradients(network, sizes, replicas, whole, 1.0, options)
    if case.p1 > 1 and case.p2 > 1:
        shared = np.ones(len(sizes.y), dtype=bool) if whole is None else ~whole
        replicas = wires.columns(case.p, case.p2)
        parts["gradient_exchange_s"] += _gradients(network, sizes, replicas, shared, 1.0 / case.p2, options)
    if case.p2 > 1:
        groups = wires.rows(case.p, case.p2)
        parts["activations_s"] = _activations(network, sizes, kind, groups, samples * delta, options)
        if kind == "spatial":
            parts["halo_s"] = _halos(network, sizes, case.grid, groups, samples * delta, options)
    return parts


def _gradients(
    network: ClusterRoutes, sizes: Sizes, groups: Ints, layers: NDArray[np.bool_], share: float, options: OracleOptions
) -> float:
    """Ring all-reduce of the layers' gradients in all groups; biases travel too, which the table leaves out."""
    graph, count = sizes.graph, groups.shape[1]
    messages = (sizes.w + sizes.b)[layers] * share
    if options.gradients == "one":
        messages = messages.sum(keepdims=True)
    wire = wires.ring(network, groups)
    size = messages * graph.element_bytes
    return float(forms.gradient_exchange_s(count, size, wire.alpha_s(size / count), wire.beta_s_per_byte))


def _activations(
    network: ClusterRoutes, sizes: Sizes, kind: str, groups: Ints, sample_bytes: float, options: OracleOptions
) -> float:
    """What Filter gathers and Channel sums, also where Spatial meets layers without positions.

    Channel sums the outputs of the layers that read a part of their channels: all with weights but the first.  The
    table prints the sum for both rows to G - 1, the outputs of all but the last.
    """
    p = groups.shape[1]
    chosen = {
        "filter": sizes.gathered,
        "channel": sizes.mixing & ~sizes.first,
        "spatial": sizes.gathered_flat,
    }.get(kind)
    if chosen is None:
        return 0.0
    rings = options.activations == "rings"
    wire = (wires.ring if rings else wires.direct)(network, groups)
    size = (sizes.delivered if kind == "filter" and not rings else sizes.y[chosen]) * sample_bytes
    total = _exchanged(wire, size, p, 3, rings=rings)
    if kind == "spatial":
        # a part of the channels from a part of the positions: 1 / p^2 from each to each, forward and back
        total += _exchanged(wire, sizes.y[sizes.regrouped] * sample_bytes / p, p, 2, rings=rings)
    return total


def _exchanged(wire: wires.Wire, size: Floats, p: int, passes: int, *, rings: bool) -> float:
    alpha = wire.alpha_s(size / p)
    if rings:
        return float(forms.activation_exchange_s(p, size, alpha, wire.beta_s_per_byte, passes=passes))
    return float(2 * (alpha + size / p * wire.beta_s_per_byte).sum())


def _halos(
    network: ClusterRoutes,
    sizes: Sizes,
    grid: tuple[int, ...],
    groups: Ints,
    sample_bytes: float,
    options: OracleOptions,
) -> float:
    forward, backward = sizes.halos(grid)
    wire = wires.neighbours(network, groups, grid)
    if options.activations == "rings":
        # halo() is for one of two neighbours, and beta for the one after the other
        halo_x, halo_dy = forward / 2 * sample_bytes, backward / 2 * sample_bytes
        alpha = wire.alpha_s(np.maximum(halo_x, halo_dy))
        return float(forms.halo_exchange_s(halo_x, halo_dy, alpha, wire.beta_s_per_byte))
    trained = np.array([sizes.graph.has_phase(i, "activation_gradient") for i in range(len(sizes.y))])
    size = forward * sample_bytes
    once = np.where(size > 0, wire.alpha_s(size / 2) + size * wire.beta_s_per_byte, 0.0)
    return float((once * (1 + trained)).sum())


def stage_costs(network: ClusterRoutes, sizes: Sizes, case: OracleCase, bounds: Ints) -> float:
    """Communication of the pipeline: row Layer."""
    micro_bytes = case.batch / case.segments * sizes.graph.element_bytes
    size = sizes.crossing[bounds[1:-1] - 1] * micro_bytes
    alpha, beta = wires.boundaries(network, case.p, size)
    return float(forms.pipeline_transfer_s(case.p, case.segments, size, alpha, beta))


def case_memory_bytes(
    sizes: Sizes, case: OracleCase, options: OracleOptions, gamma: float, bounds: Ints | None
) -> float:
    """Memory of the fullest device: Table 1, third column."""
    activations = case.batch * (sizes.x + sizes.y)
    weights, copies = sizes.w, 2 + options.optimizer_copies
    kind = HYBRIDS.get(case.strategy, case.strategy)
    if kind in ("data", "filter", "channel"):
        activations = activations / case.p1
    if kind in ("filter", "channel"):
        weights = weights / case.p2
    if kind == "spatial":
        activations = activations / case.p1 / np.where(sizes.flat, 1, case.p2)
        weights = weights / np.where(sizes.flat, case.p2, 1)
    ends = bounds if bounds is not None else np.array([0, len(sizes.y)])
    sums = [np.add.reduceat(row, ends[:-1])[:, None] for row in (activations, weights, sizes.b)]
    delta = sizes.graph.element_bytes
    stages = forms.memory_bytes(sums[0], sums[1], sums[2], gamma=gamma, delta=delta, weight_copies=copies)
    return float(stages.max())
