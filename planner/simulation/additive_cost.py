"""Additive cost (Eq. 1) of a strategy from the cost tables: compute, gradient synchronisation and transfers in turn.

Source:
    Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Eq. 1.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.compression.settings import UNCOMPRESSED, CompressionSettings
from planner.cost.compressed_sync import compressed_choices
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import LAYER_PHASES
from planner.layouts.configurations import ConfigSpace, Strategy
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS, Program
from planner.simulation.program_replay import Replay, replay
from planner.simulation.transfer_pricing import transfer_prices
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching, micro_batch_spaces
from planner.strategies.recomputation import KEEP_ACTIVATIONS, Recompute


class AdditiveTerms(NamedTuple):
    """Terms of Eq. 1 for each layer, seconds, shape (layers,) each."""

    compute_s: NDArray[np.float64]
    """Forward and backward work on all micro-batches."""
    gradient_sync_s: NDArray[np.float64]
    """Synchronisation of gradients and statistics, and the update."""
    transfer_s: NDArray[np.float64]
    """Transfers of the inputs; one that several consumers share counts for the first."""


def additive_s(
    model: CostModel,
    strategy: Strategy,
    micro_batching: MicroBatching = WHOLE_BATCH,
    compressed: CompressionSettings = UNCOMPRESSED,
    recompute: Recompute = KEEP_ACTIVATIONS,
    program: Program | None = None,
) -> float:
    """Return the additive cost (Eq. 1) of a strategy.

    A tensor that several consumers read in one layout is transferred once; work on micro-batches counts for each.

    Args:
        model: Costs of a network on a cluster; with a framework that has buckets, phases of the program are added up.
        strategy: A configuration for every layer.
        micro_batching: Micro-batches of the last layers.
        compressed: Compression settings; compression and decompression take time beside the messages.
        recompute: Activations that are computed again; with any, too, the phases of the program are added up.
        program: The program of all this, if it was lowered already.

    Returns:
        Seconds of one iteration.

    Raises:
        ConfigError: A configuration does not fit its layer or a micro-batch, or the gradient synchronisation cannot
            use the compression.

    Source:
        Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Eq. 1.
    """
    if recompute or _needs_program(model, strategy):
        if program is None:
            spaces = model.spaces_of(strategy)
            program = lower(model, spaces, micro_batching=micro_batching, compressed=compressed, recompute=recompute)
        return _in_turn(program).iteration_s
    if micro_batching.parts == 1 and not compressed:
        return _uncompressed_s(model, model.spaces_of(strategy))
    return float(sum(term.sum() for term in additive_terms(model, strategy, micro_batching, compressed)))


def _needs_program(model: CostModel, strategy: Strategy) -> bool:
    """Return whether phases of the program are added up: of buckets and storage there are no tables.

    Those of meshes are of whole searches (``planner.search.search_tables.mesh_problem``); their sums are the same.
    """
    meshes = any(each.mesh is not None for each in strategy.values())
    return meshes or model.conditions.framework.is_synchronous or model.conditions.storage.divides


@lru_cache(maxsize=1)
def _in_turn(program: Program) -> Replay:
    """Return one iteration in which nothing overlaps: its phases one after the other."""
    return replay(program, overlap=False, contention=False, iterations=1)


def _uncompressed_s(model: CostModel, spaces: Sequence[ConfigSpace]) -> float:
    """Return Eq. 1 of one configuration a layer, added up in the order in which the search reports its cost."""
    total_s = sum(float(model.node_costs(i, space).total_s[0]) for i, space in enumerate(spaces))
    transfer_s = transfer_prices(model)
    for producer, edges in zip(spaces, model.graph.outgoing, strict=True):
        by_layout: dict[int, float] = {}
        for edge in edges:
            consumer = spaces[edge.consumer]
            layout = int(model.transfer_times.layouts(edge, consumer)[0])
            by_layout[layout] = max(by_layout.get(layout, 0.0), float(transfer_s(edge, producer, consumer)[0, 0]))
        total_s += sum(by_layout.values())
    return total_s


def additive_terms(
    model: CostModel,
    strategy: Strategy,
    micro_batching: MicroBatching = WHOLE_BATCH,
    compressed: CompressionSettings = UNCOMPRESSED,
) -> AdditiveTerms:
    """Return the terms of Eq. 1 of a strategy for each layer; ``additive_s`` is their sum.

    Args:
        model: Costs of a network on a cluster.
        strategy: A configuration for every layer.
        micro_batching: Micro-batches of the last layers.
        compressed: Compression settings.

    Raises:
        ConfigError: A configuration does not fit its layer or a micro-batch, or the gradient synchronisation cannot
            use the compression.

    Source:
        Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Eq. 1.
    """
    count, spaces = len(model.cluster.devices), model.spaces_of(strategy)
    micro_model = model.for_batch(model.graph.batch // micro_batching.parts)
    micro_spaces = micro_batch_spaces(micro_model.graph, spaces, micro_batching, count)
    terms = AdditiveTerms(*(np.zeros(len(spaces)) for _ in AdditiveTerms._fields))
    for i in range(len(spaces)):
        used, rows = (micro_model, micro_spaces) if micro_batching.of(i) > 1 else (model, spaces)
        costs = used.node_costs(i, rows[i])
        gradient_sync_s = float(costs.gradient_sync_s[0] - costs.statistics_s[0])
        kind = compressed.gradient(model.graph, i)
        if kind is not None:
            gradient_sync_s = sum(choice.price_s for choice in compressed_choices(model, kind, i, spaces[i]))
        once_s = float(costs.phase_s["update"][0]) + gradient_sync_s
        terms.compute_s[i] = micro_batching.of(i) * float(costs.compute_s[0])
        if not micro_batching.update_each:
            terms.compute_s[i] += (micro_batching.of(i) - 1) * used.compute_times.later_s(i, rows[i]).max(initial=0.0)
        statistics_s = micro_batching.of(i) * float(costs.statistics_s[0])
        terms.gradient_sync_s[i] = statistics_s + once_s * (micro_batching.of(i) if micro_batching.update_each else 1)
    for edges in model.graph.outgoing:
        paid: set[tuple[bool, int]] = set()
        for edge in edges:
            divided = micro_batching.of(edge.consumer) > 1 and edge not in model.graph.shared
            used, rows = (micro_model, micro_spaces) if divided else (model, spaces)
            layout = (divided, int(used.transfer_times.layouts(edge, rows[edge.consumer])[0]))
            if layout not in paid:
                paid.add(layout)
                price_s = transfer_prices(used, compressed)(edge, rows[edge.producer], rows[edge.consumer])[0, 0]
                terms.transfer_s[edge.consumer] += (micro_batching.parts if divided else 1) * float(price_s)
    return terms


def layer_terms(model: CostModel, strategy: Strategy, micro_batching: MicroBatching, program: Program) -> AdditiveTerms:
    """Return the terms of Eq. 1 of a strategy for each layer, of which ``additive_s`` is the sum without recomputation.

    Args:
        model: Costs of a network on a cluster.
        strategy: A configuration for every layer.
        micro_batching: Micro-batches of the last layers.
        program: The strategy lowered.
    """
    if not _needs_program(model, strategy):
        return additive_terms(model, strategy, micro_batching, program.compressed)
    return program_terms(program)


def program_terms(program: Program) -> AdditiveTerms:
    """Return the times of a program's phases by layer, where nothing overlaps.

    The time of a bucket is divided among its layers in proportion to their bytes.  Of programs that tables can price
    these are the terms of ``additive_terms``.
    """
    replayed = _in_turn(program)
    task_of, schedule = replayed.program_graph.task_of[0], replayed.schedule
    taken_s = (schedule.end_s - schedule.ready_s)[task_of]
    groups, first, group = np.unique(program.group, return_index=True, return_inverse=True)
    longest_s = np.zeros(len(groups))
    np.maximum.at(longest_s, group, taken_s)
    phases_s = np.zeros(program.size)
    phases_s[first] = longest_s
    moves = program.consumer >= 0
    computes = np.isin(program.kind, [KINDS.index(kind) for kind in LAYER_PHASES[:3]])
    kinds = (computes, ~computes & ~moves, moves)
    owner = np.where(moves, program.consumer, program.layer)
    return AdditiveTerms(*(program.by_layer(np.where(kind, phases_s, 0.0), owner) for kind in kinds))
