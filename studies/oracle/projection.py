"""Projection of every strategy on every number of devices: from a model, a cluster and a request to the table."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np

from groundwork.errors import ConfigError
from groundwork.progress import Progress, keeping
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import ComputationGraph
from planner.topology.network_routes import ClusterRoutes
from studies.oracle import alpha_beta as wires
from studies.oracle.cases import SAMPLED, OracleCase, OracleInputs, case_of, inputs_of, limit_of
from studies.oracle.oracle_memory import least_memory_bytes, memory_reuse
from studies.oracle.oracle_request import STRATEGIES, OracleRequest
from studies.oracle.oracle_table import Limit, OracleRow, OracleTable, Simulated, WireRow
from studies.oracle.projected_rows import project_rows
from studies.oracle.simulated_cases import simulate_cases

LEVEL_BYTES = 2**20
"""Size of the message whose alpha the table reports for each level of the cluster."""


def oracle(
    graph: ComputationGraph,
    cluster: DeviceGraph,
    request: OracleRequest,
    *,
    processes: int = 0,
    progress: Progress | None = None,
) -> OracleTable:
    """Project every strategy on every number of devices by the closed forms of ParaDL.

    Args:
        graph: The model; its batch is the mini-batch of all devices, unless the request has ``batch_per_device``.
        cluster: Device graph; p devices are its first p.
        request: Data set, device counts, strategies, and parameters of the closed forms.
        processes: Processes that simulate, where the request says so; 0: one a processor core.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: A device count is beyond the cluster, the data set is smaller than a mini-batch, the segments do
            not divide, or a strategy that was named suits none of the device counts.
        Interrupted: After Ctrl-C while cases are simulated, with those that are.

    Source:
        Kahira et al., "An Oracle for Guiding Large-Scale Model/Hybrid Parallel Training of Convolutional Neural
        Networks", Table 1.
    """
    inputs, most = inputs_of(graph, cluster, request), max(request.devices)
    if most > len(cluster.devices):
        raise ConfigError(
            f"devices must be at most the {len(cluster.devices)} of {cluster.name}, got {most}; "
            f"clusters of the catalogue grow by a parameter, such as {cluster.name.partition(':')[0]}:nodes=N"
        )
    model = CostModel(graph, cluster)
    cases, limits = _cases(inputs)
    gamma = memory_reuse(graph, cluster) if request.memory_reuse is None else request.memory_reuse
    rows = project_rows(model, inputs, cases, {limit.strategy: limit for limit in limits}, gamma)
    simulated: list[Simulated | None] = [None] * len(cases)

    def table(*notes: str) -> OracleTable:
        shown = [replace(row, simulated=each) for row, each in zip(rows, simulated, strict=True)]
        return _table(model, inputs, gamma, shown, limits, notes)

    def finished() -> OracleTable:
        return table(f"Interrupted: {sum(map(bool, simulated)):,} of {len(cases):,} rows were simulated.")

    if request.simulate:
        computed = simulate_cases(graph, cluster, cases, inputs.samples, processes=processes)
        with keeping(finished), closing(computed):
            for done, (number, result) in enumerate(computed, 1):
                simulated[number] = result
                if progress:
                    progress("simulating", done, len(cases))
    return table()


def _table(
    model: CostModel,
    inputs: OracleInputs,
    gamma: float,
    rows: Sequence[OracleRow],
    limits: Sequence[Limit],
    notes: tuple[str, ...],
) -> OracleTable:
    """Return the table of rows; no simulation wins on numbers of devices of which rows are left to simulate."""
    graph, cluster, request = model.graph, model.cluster, inputs.request
    whole = {row.devices for row in rows} - {row.devices for row in rows if not row.simulated}
    return OracleTable(
        model=graph.name,
        cluster=cluster.name,
        dataset=str(request.dataset),
        samples=inputs.samples,
        scaling="weak" if inputs.weak else "strong",
        batch=inputs.batch,
        epochs=request.epochs,
        budget_gpu_hours=request.budget_gpu_hours,
        gamma=gamma,
        delta_bytes=graph.element_bytes,
        device_memory_bytes=least_memory_bytes(cluster, max(request.devices)),
        wires=_levels(model.network, max(request.devices)),
        rows=tuple(rows),
        limits=tuple(limits),
        winners=_winners((row, row.epoch_s) for row in rows if row.fits),
        simulated_winners=_winners(
            (row, s.epoch_s) for row in rows if (s := row.simulated) and s.fits and row.devices in whole
        ),
        notes=(*_notes(inputs), *notes),
    )


def _cases(inputs: OracleInputs) -> tuple[list[OracleCase], list[Limit]]:
    """Return the cases that the limits allow, and the limit of every strategy."""
    cases: list[OracleCase] = []
    limits: list[Limit] = []
    named, devices = inputs.request.strategies, sorted(set(inputs.request.devices))
    for name in named or STRATEGIES:
        made = {p: case_of(inputs, name, p) for p in ([1] if name == "serial" else devices)}
        allowed = [case for case in made.values() if isinstance(case, OracleCase)]
        refused = {p: case for p, case in made.items() if isinstance(case, str)}
        if named and not allowed:
            p, reason = next(iter(refused.items()))
            raise ConfigError(f"devices must suit {name} on {inputs.sizes.graph.name}, got {p}: {reason}")
        cases += allowed
        most, reason = limit_of(inputs, name)
        limits.append(Limit(strategy=name, devices=most, reason=reason, refused=refused))
    return cases, limits


def _winners(epoch_s: Iterable[tuple[OracleRow, float]]) -> dict[int, str]:
    """Return for every number of devices the strategy with the shortest epoch."""
    winners: dict[int, tuple[float, str]] = {}
    for row, seconds in epoch_s:
        if row.devices not in winners or seconds < winners[row.devices][0]:
            winners[row.devices] = seconds, row.strategy
    return {p: winners[p][1] for p in sorted(winners)}


def _levels(network: ClusterRoutes, devices: int) -> tuple[WireRow, ...]:
    """Return alpha and beta of a ring inside a node, and of a ring over all devices."""
    first = network.node[:devices] == network.node[0]
    groups = {"inside a node": np.flatnonzero(first)[None, :]}
    if not first.all():
        groups["between nodes"] = wires.rows(devices, devices)
    rings = [(level, wires.ring(network, members)) for level, members in groups.items() if members.shape[1] > 1]
    return tuple(
        WireRow(
            level=level,
            alpha_s=float(wire.alpha_s(np.array([float(LEVEL_BYTES)]))[0]),
            beta_s_per_byte=wire.beta_s_per_byte,
        )
        for level, wire in rings
    )


def _notes(inputs: OracleInputs) -> tuple[str, ...]:
    """Return the notes on the mini-batch of each strategy."""
    if inputs.weak:
        return (
            f"Weak scaling: {', '.join(SAMPLED)} take {inputs.batch} samples a device; the other strategies split no "
            f"samples and keep a mini-batch of {inputs.batch}.",
            "An epoch is assumed to be worth the same whatever the mini-batch; training with very large mini-batches "
            "may need more epochs.",
        )
    return (f"Strong scaling: every strategy has a mini-batch of {inputs.batch}.",)
