"""From a model, a cluster and a data set to the table: cases, times of all of them at once, forms."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hwprofiles import HOUR_S, ConfigError, Floats, Progress
from hwprofiles.devices import DeviceGraph
from planner.cost import CostModel
from planner.graph import ComputationGraph
from planner.lowering import lower
from planner.memory import peak_memory_bytes
from planner.parallel import Configuration, spaces_of
from planner.search import balanced
from planner.topology import ClusterRoutes
from studies.oracle import alpha_beta as wires, forms
from studies.oracle.case_costs import case_memory_bytes, communication_s, stage_costs
from studies.oracle.cases import SAMPLED, OracleCase, OracleRequest, case_of, limits_of
from studies.oracle.datasets import samples_of
from studies.oracle.layer_sizes import Sizes
from studies.oracle.oracle_options import STRATEGIES, OracleOptions, check_oracle_strategy
from studies.oracle.oracle_table import Limit, OracleRow, OracleTable, WireRow
from studies.oracle.pipelines import boundaries_s, pipeline_makespan_s, planned_bounds
from studies.oracle.simulated_cases import simulate_cases
from studies.oracle.splits import Split, layer_times

__all__ = ["memory_reuse", "oracle", "request_of"]

LEVEL_BYTES = 2**20
"""Message whose alpha the levels print."""


def oracle(
    graph: ComputationGraph,
    cluster: DeviceGraph,
    *,
    dataset: str | int,
    devices: Sequence[int],
    strategies: Sequence[str] | None = None,
    batch_per_device: int | None = None,
    options: OracleOptions | None = None,
    epochs: int = 1,
    budget_gpu_hours: float | None = None,
    simulate: bool = False,
    processes: int = 0,
    progress: Progress | None = None,
) -> OracleTable:
    """Project every strategy on every number of devices by the closed forms of ParaDL, Table 1.

    Args:
        graph: The model; its batch is the mini-batch of all devices, unless ``batch_per_device`` is given.
        cluster: Device graph; p devices are its first p.
        dataset: A name of ``DATASETS``, or a number of samples.
        devices: Numbers of devices, each at least 1 and at most the cluster's.
        strategies: Of ``STRATEGIES``; None for all.
        batch_per_device: Weak scaling: strategies that split samples take so many a device, and the others keep it
            as their whole batch, as in the paper's Figure 1.
        options: Parameters, and how the table is read.
        epochs, budget_gpu_hours: A row is within the budget if p devices for so many epochs are.
        simulate: Replay the strategy of every row as a plan, with overlap and contention.
        processes, progress: As for ``studies.oracle.simulated_cases.simulate_cases``.

    Raises:
        ConfigError: A number is out of range, a name is unknown, the data set is smaller than a mini-batch, the
            segments do not divide, or a strategy that was named has none of the numbers of devices.
    """
    question = request_of(graph, cluster, dataset, batch_per_device, options=options or OracleOptions())
    _check(cluster, devices, strategies or (), epochs, budget_gpu_hours)
    model = CostModel(graph, cluster)
    gamma, cases, limits, rows = _projected(model, question, strategies, devices, epochs, budget_gpu_hours)
    if simulate:
        rows = _replayed(rows, model, cases, question, processes, progress)
    return OracleTable(
        model=graph.name,
        cluster=cluster.name,
        dataset=str(dataset),
        samples=question.samples,
        scaling="weak" if question.weak else "strong",
        batch=question.batch,
        epochs=epochs,
        budget_gpu_hours=budget_gpu_hours,
        gamma=gamma,
        delta_bytes=graph.element_bytes,
        device_memory_bytes=_least_memory_bytes(cluster, max(devices)),
        wires=_levels(model.network, max(devices)),
        rows=tuple(rows),
        limits=tuple(limits),
        winners=_winners((row, row.epoch_s) for row in rows if row.fits),
        simulated_winners=_winners((row, s.epoch_s) for row in rows if (s := row.simulated) and s.fits),
        notes=_notes(question),
    )


def request_of(
    graph: ComputationGraph, cluster: DeviceGraph, dataset: str | int, per_device: int | None = None, *,
    options: OracleOptions,
) -> OracleRequest:  # fmt: skip
    """What all cases share; arguments and errors as for ``oracle``."""
    samples, weak = samples_of(dataset), per_device is not None
    if per_device is not None and (type(per_device) is not int or per_device < 1):
        raise ConfigError(f"batch_per_device must be a whole number >= 1, got {per_device!r}")
    batch = per_device if per_device is not None else graph.batch
    if batch > samples:
        raise ConfigError(f"batch must be at most the {samples:,} samples of the data set, got {batch:,}")
    node = int(np.bincount([device.node for device in cluster.devices]).max())
    return OracleRequest(
        sizes=Sizes(graph), samples=samples, batch=batch, weak=weak, node_devices=node, options=options
    )  # fmt: skip


def _check(
    cluster: DeviceGraph, devices: Sequence[int], strategies: Sequence[str], epochs: int, budget: float | None
) -> None:
    if not devices or any(type(p) is not int or p < 1 for p in devices):
        raise ConfigError(f"devices must be whole numbers >= 1, got {list(devices)!r}")
    if max(devices) > len(cluster.devices):
        raise ConfigError(
            f"devices must be at most the {len(cluster.devices)} of {cluster.name}, got {max(devices)}; "
            f"clusters of the catalogue grow by a parameter, such as {cluster.name.partition(':')[0]}:nodes=N"
        )
    if type(epochs) is not int or epochs < 1:
        raise ConfigError(f"epochs must be a whole number >= 1, got {epochs!r}")
    if budget is not None and not 0 < budget < np.inf:
        raise ConfigError(f"budget_gpu_hours must be a finite number > 0, got {budget!r}")
    for name in strategies:
        check_oracle_strategy(name)


def _projected(
    model: CostModel, question: OracleRequest, strategies: Sequence[str] | None, devices: Sequence[int], epochs: int,
    budget_gpu_hours: float | None,
) -> tuple[float, list[OracleCase], list[Limit], list[OracleRow]]:  # fmt: skip
    """What the closed forms say: gamma, the cases that can be had, the limits of all strategies, a row a case."""
    cases, limits = _cases(question, strategies or STRATEGIES, sorted(set(devices)), named=strategies is not None)
    gamma = question.options.memory_reuse
    if gamma is None:
        gamma = memory_reuse(model.graph, model.cluster)
    hours = budget_gpu_hours if budget_gpu_hours is not None else np.inf
    rows = _rows(model, question, cases, {limit.strategy: limit for limit in limits}, gamma, epochs, hours)
    return gamma, cases, limits, rows


def _cases(
    question: OracleRequest, strategies: Sequence[str], devices: Sequence[int], *, named: bool
) -> tuple[list[OracleCase], list[Limit]]:
    cases: list[OracleCase] = []
    limits: list[Limit] = []
    for name in strategies:
        found = {p: case_of(question, name, p) for p in ([1] if name == "serial" else devices)}
        had = [case for case in found.values() if isinstance(case, OracleCase)]
        refused = {p: case for p, case in found.items() if isinstance(case, str)}
        if named and not had:
            p, reason = next(iter(refused.items()))
            raise ConfigError(f"devices must suit {name} on {question.sizes.graph.name}, got {p}: {reason}")
        cases += had
        limits.append(limits_of(question, name, refused))
    return cases, limits


def memory_reuse(graph: ComputationGraph, cluster: DeviceGraph) -> float:
    """Gamma of a model: what ``planner.memory.peak_memory`` keeps of activations at the peak, over 2 sum(|x| + |y|) of
    the table.

    On one device without a split, where nothing but activations, their gradients and parameters is kept.
    """
    alone = {layer.name: Configuration(dict.fromkeys(layer.parallel_dims, 1), (0,)) for layer in graph.layers}
    model = CostModel(graph, DeviceGraph(cluster.name, [replace(cluster.devices[0], node=0)], (), ()))
    program = lower(model, spaces_of(graph, alone, 1))
    counted = 2 * sum(
        layer.output.elements + sum(shape.elements for shape in layer.input_shapes) for layer in graph.layers
    )
    held = peak_memory_bytes(program, without=("parameters", "optimizer state", "parameter gradients", "statistics"))
    return float(held[0]) / (counted * graph.element_bytes)


def _rows(
    model: CostModel,
    question: OracleRequest,
    cases: Sequence[OracleCase],
    limits: dict[str, Limit],
    gamma: float,
    epochs: int,
    budget_gpu_hours: float,
) -> list[OracleRow]:
    sizes, options = question.sizes, question.options
    times = layer_times(model, sizes, [_timed(case, options) for case in cases])
    rows = []
    for c, case in enumerate(cases):
        fw, bw, wu, gradient = _shares(case, options, {phase: row[c] for phase, row in times.items()}, sizes)
        parts = {"gradient_exchange_s": 0.0, "activations_s": 0.0, "halo_s": 0.0, "pipeline_s": 0.0}
        bounds = None
        if case.strategy == "layer":
            compute_s, update_s, parts["pipeline_s"], bounds = _pipeline(
                model, sizes, case, options, (fw, bw, wu, gradient)
            )  # fmt: skip
        else:
            update_s, compute_s = float(wu.sum()), float(forms.computation_s(fw, bw, wu))
            parts |= communication_s(model.network, sizes, case, options)
        memory = case_memory_bytes(sizes, case, options, gamma, bounds)
        rows.append(
            _row(model.cluster, question, case, parts, (compute_s, update_s, memory), limits[case.strategy],
                 epochs, budget_gpu_hours)
        )  # fmt: skip
    return rows


def _pipeline(
    model: CostModel, sizes: Sizes, case: OracleCase, options: OracleOptions, times: tuple[Floats, ...]
) -> tuple[float, float, float, NDArray[np.int64]]:
    """Computation with the update, update and communication of a pipeline, and the bounds of its stages.

    Of stages one by one, communication is what an iteration takes longer than with free transfers.
    """
    one_by_one = options.pipeline == "stages" and case.p > 1
    planned = planned_bounds(model, case) if one_by_one else None
    bounds = balanced(times[0] + times[1], case.p) if planned is None else planned
    fw, bw, wu = (np.add.reduceat(row, bounds[:-1]) for row in times[:3])
    if not one_by_one:
        compute_s = float(forms.pipeline_computation_s(fw, bw, wu, case.segments))
        return compute_s, float(wu.max()), stage_costs(model.network, sizes, case, bounds), bounds
    sent_s = boundaries_s(model, sizes, case, bounds)
    behind_s = times[3][bounds[:-1]]
    free_s, all_s = (
        pipeline_makespan_s(fw, bw, wu, transfer_s, case.segments, behind_s)
        for transfer_s in (np.zeros_like(sent_s), sent_s)
    )
    return free_s, float(wu.max()), all_s - free_s, bounds


def _timed(case: OracleCase, options: OracleOptions) -> Split:
    """The part whose times are asked for: of ideal scaling that of one device."""
    if options.compute == "parts":
        return case.split
    return Split(devices=case.p, samples=case.batch)


def _shares(case: OracleCase, options: OracleOptions, times: dict[str, Floats], sizes: Sizes) -> tuple[Floats, ...]:
    """FW, BW, WU and BW's weight gradient of what a device computes, (G,) each; of a micro-batch in a pipeline."""
    fw, wu, gradient = times["forward"], times["update"], times["weight_gradient"]
    bw = times["activation_gradient"] + gradient
    if options.compute == "ideal":
        over = case.segments if case.strategy == "layer" else case.p
        fw, bw, gradient = fw / over, bw / over, gradient / over
        if case.strategy in ("filter", "channel", "data+filter"):
            wu = wu / case.p2
        elif case.grid:
            wu = wu / np.where(sizes.flat, case.p2, 1)
    return fw, bw, wu, gradient


def _row(
    cluster: DeviceGraph, question: OracleRequest, case: OracleCase, parts: dict[str, float],
    costs: tuple[float, float, float], limit: Limit, epochs: int, budget_gpu_hours: float,
) -> OracleRow:  # fmt: skip
    compute_s, update_s, memory_bytes = costs
    communication = sum(parts.values())
    iteration_s = compute_s + communication
    epoch_s = question.samples / case.batch * iteration_s
    gpu_hours = case.p * epoch_s * epochs / HOUR_S
    return OracleRow(
        strategy=case.strategy,
        devices=case.p,
        degrees=case.degrees,
        batch=case.batch,
        forward_backward_s=compute_s - update_s,
        update_s=update_s,
        gradient_exchange_s=parts["gradient_exchange_s"],
        activations_s=parts["activations_s"],
        halo_s=parts["halo_s"],
        pipeline_s=parts["pipeline_s"],
        compute_s=compute_s,
        communication_s=communication,
        iteration_s=iteration_s,
        epoch_s=epoch_s,
        samples_per_s=case.batch / iteration_s,
        memory_bytes=memory_bytes,
        fits=memory_bytes <= _least_memory_bytes(cluster, case.p),
        limit=limit.devices,
        limit_reason=limit.reason,
        gpu_hours=gpu_hours,
        within_budget=gpu_hours <= budget_gpu_hours,
    )


def _least_memory_bytes(cluster: DeviceGraph, devices: int) -> float:
    """Of the first so many devices."""
    return min(device.memory_bytes for device in cluster.devices[:devices])


def _replayed(
    rows: Sequence[OracleRow], model: CostModel, cases: Sequence[OracleCase], question: OracleRequest, processes: int,
    progress: Progress | None,
) -> list[OracleRow]:  # fmt: skip
    """The rows, each with its strategy replayed as a plan."""
    found = simulate_cases(
        model.graph, model.cluster, cases, question.samples, processes=processes, progress=progress
    )  # fmt: skip
    return [replace(row, simulated=second) for row, second in zip(rows, found, strict=True)]


def _winners(epoch_s: Iterable[tuple[OracleRow, float]]) -> dict[int, str]:
    """For every number of devices the strategy with the shortest epoch."""
    winners: dict[int, tuple[float, str]] = {}
    for row, seconds in epoch_s:
        if row.devices not in winners or seconds < winners[row.devices][0]:
            winners[row.devices] = seconds, row.strategy
    return {p: winners[p][1] for p in sorted(winners)}


def _levels(network: ClusterRoutes, devices: int) -> tuple[WireRow, ...]:
    """Alpha and beta of a ring in a node, and of one over all devices."""
    first = network.node[:devices] == network.node[0]
    groups = {"inside a node": np.flatnonzero(first)[None, :]}
    if not first.all():
        groups["between nodes"] = wires.rows(devices, devices)
    found = [(level, wires.ring(network, members)) for level, members in groups.items() if members.shape[1] > 1]
    return tuple(
        WireRow(
            level=level,
            alpha_s=float(wire.alpha_s(np.array([float(LEVEL_BYTES)]))[0]),
            beta_s_per_byte=wire.beta_s_per_byte,
        )
        for level, wire in found
    )


def _notes(question: OracleRequest) -> tuple[str, ...]:
    if question.weak:
        return (
            f"weak scaling: {', '.join(SAMPLED)} take {question.batch} samples a device; the others split no samples "
            f"and keep a mini-batch of {question.batch}",
            "epochs are taken to be worth the same whatever the mini-batch; very large ones may need more of them",
        )
    return (f"strong scaling: every strategy has a mini-batch of {question.batch}",)
