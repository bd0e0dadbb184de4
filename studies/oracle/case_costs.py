"""Communication of one case by the closed forms of Table 1."""

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from planner.cost.library_rounds import library_collective_s
from planner.topology.network_routes import ClusterRoutes
from studies.oracle import alpha_beta as wires, forms
from studies.oracle.cases import OracleCase
from studies.oracle.layer_sizes import Sizes
from studies.oracle.oracle_request import OracleRequest

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
