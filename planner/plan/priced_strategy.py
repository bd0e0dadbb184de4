"""One strategy on one cluster: its price and its ladder, and from these everything that a comparison tells of it."""

from dataclasses import dataclass, replace

import numpy as np

from planner.cost.all_reduce import layer_choice
from planner.cost.conditions import IDEAL_CONDITIONS
from planner.cost.cost_model import CostModel
from planner.expected.likely_times import WIDE_ARITHMETIC, TimeParts, expected_s
from planner.layouts.configurations import ConfigSpace, Configuration, Strategy
from planner.lowering.program import Program
from planner.memory.peak_memory import peak_by_kind_bytes, peak_memory_bytes
from planner.plan.comparison import LayerResult, StrategyResult
from planner.plan.lowered_plan import PlannedStrategy, folds
from planner.plan.pace import pace_of
from planner.plan.training_rates import training_rates
from planner.simulation.additive_cost import additive_s, layer_terms
from planner.simulation.ladder import ladder_s, upper_rungs_s
from planner.simulation.lower_bound import iteration_bound
from planner.simulation.program_replay import Replay, replay
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedStrategy:
    """A strategy lowered and replayed on a cluster, with its time under each execution model."""

    model: CostModel
    name: str
    planned: PlannedStrategy
    full: Replay
    """Replay under all conditions of the model."""
    additive_s: float
    ladder_s: dict[str, float]


def one_device_s(model: CostModel) -> float:
    """Return the expected time of the whole batch on the first device, as if its memory were unlimited."""
    alone = {layer.name: Configuration(dict.fromkeys(layer.parallel_dims, 1), (0,)) for layer in model.graph.layers}
    by_relative = bool(model.compute_times.relatives)
    total_s = additive_s(model, alone)
    half = model.conditions.arithmetic not in WIDE_ARITHMETIC
    parts = TimeParts(total_s=total_s, exposed_s=0.0, devices=1, message_bytes=0.0, by_relative=by_relative, half=half)
    return expected_s(parts)


def price_strategy(model: CostModel, name: str, planned: PlannedStrategy, full: Replay) -> PricedStrategy:
    """Return a strategy with its ladder: the first numbers of ``strategy_result``.

    Args:
        model: Prices of a network on a cluster.
        name: Name of the strategy.
        planned: The strategy; it may have been chosen on a cluster with other links.
        full: Its replay under the conditions of the model.

    Raises:
        ConfigError: A configuration does not fit its layer or the cluster.
    """
    program = full.program
    above = model.conditions.interference or model.conditions.spread
    plain_s = replay(program, interference=False, spread=False).iteration_s if above else full.iteration_s
    priced_s = planned.additive_s(model, program)
    ladder = _ladder(model, planned, program, priced_s, plain_s)
    return PricedStrategy(
        model=model,
        name=name,
        planned=planned,
        full=full,
        additive_s=priced_s,
        ladder_s=ladder | upper_rungs_s(program, model.conditions, full.iteration_s),
    )


def strategy_ladder(model: CostModel, planned: PlannedStrategy, program: Program) -> tuple[float, dict[str, float]]:
    """Return the price and ladder of a strategy, as ``price_strategy`` has them to the last bit, without its replay.

    Args:
        model: Prices of a network on a cluster.
        planned: The strategy.
        program: The strategy lowered.

    Returns:
        Additive cost, and seconds by rung, of which the last is the simulated time.
    """
    plain_s = replay(program, interference=False, spread=False).iteration_s
    priced_s = planned.additive_s(model, program)
    ladder = _ladder(model, planned, program, priced_s, plain_s)
    return priced_s, ladder | upper_rungs_s(program, model.conditions)


def strategy_result(priced: PricedStrategy, alone_s: float) -> StrategyResult:
    """Return everything that a comparison tells of a strategy.

    Args:
        priced: The strategy with its replays.
        alone_s: Time of the whole batch on one device, as of ``one_device_s``.
    """
    model, full, program = priced.model, priced.full, priced.full.program
    shares, (bound_s, reason) = full.shares(), iteration_bound(program)
    return StrategyResult(
        name=priced.name,
        ladder_s=priced.ladder_s,
        additive_s=priced.additive_s,
        simulated_s=full.iteration_s,
        rates=training_rates(model, program, full.expected_s),
        speedup=alone_s / full.expected_s,
        moved_bytes=program.moved_bytes,
        compute_s=shares.compute_s,
        exposed_communication_s=shares.exposed_communication_s,
        idle_s=shares.idle_s,
        peak_memory_bytes=tuple(peak_memory_bytes(program).tolist()),
        memory_by_kind_bytes=peak_by_kind_bytes(program),
        lower_bound_s=bound_s,
        bound_reason=reason,
        engine_s=full.engine_s,
        tasks=full.tasks,
        alike=() if program.classes is None else tuple(program.classes.alike.tolist()),
        layers=layer_results(model, priced.planned.strategy, priced.planned.micro_batching, program),
        timeline=full.timeline(),
        link_use=full.link_use(),
        collective_devices=program.collective_devices,
        pace=pace_of(priced.full),
        planned=priced.planned,
        time_parts=full.time_parts,
    )


def _ladder(
    model: CostModel, planned: PlannedStrategy, program: Program, price_s: float, plain_s: float
) -> dict[str, float]:
    """Return the rungs up to contention; micro-batches come last, to show the gain of them alone.

    Args:
        model: As for ``strategy_ladder``, as are the next two.
        planned: See there.
        program: See there.
        price_s: Additive cost.
        plain_s: Time with overlap and contention, and nothing above.
    """
    if planned.micro_batching.parts == 1:
        return ladder_s(program, price_s, plain_s, IDEAL_CONDITIONS)
    at_once = replace(planned, micro_batching=WHOLE_BATCH, gradient_sync_order="end")
    whole = at_once.lowered(model, check_memory=False, folded=folds(model.cluster))
    rungs = ladder_s(whole, at_once.additive_s(model, whole), conditions=IDEAL_CONDITIONS)
    return {**rungs, "pipelining": plain_s}


def layer_results(
    model: CostModel, strategy: Strategy, micro_batching: MicroBatching, program: Program
) -> tuple[LayerResult, ...]:
    """Return the terms of Eq. 1 of every layer, and the bytes that it moves.

    Args:
        model: Prices of a network on a cluster.
        strategy: Configuration of every layer.
        micro_batching: Layers that compute in micro-batches.
        program: The strategy lowered, whose transfers count for the layer that receives them.

    Source:
        Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Eq. 1.
    """
    terms, spaces = layer_terms(model, strategy, micro_batching, program), model.spaces_of(strategy)
    owner = np.where(program.consumer >= 0, program.consumer, program.layer)
    moved = program.by_layer(program.size_bytes * program.stands_for, owner)
    rows = []
    for i, (layer, space) in enumerate(zip(model.graph.layers, spaces, strict=True)):
        configuration = strategy.get(layer.name) or space.configuration(0)
        rows.append(
            LayerResult(
                name=layer.name,
                kind=layer.operation.kind,
                output=" x ".join(str(size) for size in layer.output.sizes),
                degrees=dict(configuration.degrees),
                devices=configuration.devices,
                compute_s=float(terms.compute_s[i]),
                gradient_sync_s=float(terms.gradient_sync_s[i]),
                transfer_s=float(terms.transfer_s[i]),
                moved_bytes=float(moved[i]),
                gradient_sync=_sync_choice(model, program, i, space),
            )
        )
    return tuple(rows)


def _sync_choice(model: CostModel, program: Program, layer: int, space: ConfigSpace) -> str:
    """Return the algorithm that synchronises a layer's gradients, and why; empty where there are none."""
    graph = model.graph
    if program.framework.is_synchronous:
        choice = program.bucket_choices.get(layer)
    else:
        choice = layer_choice(model.network, model.gradient_sync, graph.layers[layer], space, model.message_bytes)
    if choice is None:
        return ""
    price, other = f"{1e3 * choice.price_s:.3g} ms", f"{choice.runner_up} {1e3 * choice.runner_up_s:.3g} ms"
    why = f", {price}; {other}" if choice.runner_up else ""
    return choice.scheme + why
