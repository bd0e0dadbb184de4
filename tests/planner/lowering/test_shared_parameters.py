"""Parameters that two layers use: what travels, what it costs, and what frozen ones leave out."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from plans import program_of, random_strategy, star
from torch import nn

from groundwork.errors import ConfigError
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import ComputationGraph
from planner.graph.shapes import SUMMED
from planner.importing.graph_of import imported_graph
from planner.layouts.configurations import Configuration, space_of
from planner.layouts.mesh import Mesh
from planner.layouts.regions import needed_regions
from planner.layouts.shared_regions import equal_gradients, shared_gradient_regions
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.memory.peak_memory import peak_memory_bytes
from planner.search.layerwise import search_layerwise
from planner.simulation.additive_cost import additive_s
from planner.simulation.program_replay import replay
from planner.strategies.micro_batches import micro_batching_of
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

DEVICES = 4


class Tied(nn.Module):
    """A table of words, a layer, and the scores of all words by the same table."""

    def __init__(self):
        super().__init__()
        self.words, self.inner, self.head = nn.Embedding(24, 8), nn.Linear(8, 8), nn.Linear(8, 24)
        self.head.weight = self.words.weight

    def forward(self, ids):
        return self.head(self.inner(self.words(ids)).tanh())


@cache
def tied() -> ComputationGraph:
    return imported_graph(trace_of(Tied(), input_specs(["8x4:int"])), name="tied").graph


def strategies(graph):
    """Named strategies, then random ones."""
    rows = [named_strategy(name, graph, DEVICES) for name in ("data", "filter", "spatial", "data=2,filter=2")]
    return rows + [random_strategy(graph, DEVICES, np.random.default_rng(seed)) for seed in range(12)]


def test_a_shared_parameter_is_one():
    """One table is counted once, trained by the first layer, and known by both of its keys."""
    graph = tied()
    words, head = graph.layers[0], graph.layers[graph.index["head"]]

    assert graph.parameter_count == sum(p.numel() for p in Tied().parameters())
    assert [(way.producer, way.consumer) for way in graph.shared] == [(0, graph.index["head"])]
    assert (dict(words.keys)["weight"], words.aliases) == ("words.weight", (("weight", "head.weight"),))
    assert head.parameter_count == 24


class Scaled(nn.Module):
    """Two layers with one scale of a single element, trained or frozen."""

    def __init__(self, trains):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.tensor(2.0), requires_grad=trains)

    def forward(self, x):
        return self.last((self.first(x) * self.scale).tanh()) * self.scale


@pytest.mark.parametrize("trains", [True, False])
def test_a_shared_scalar_is_one_element(trains):
    """Without axes of its own it is held and needed as one element, and frozen for all where it is frozen."""
    graph = imported_graph(trace_of(Scaled(trains), input_specs(["8x4"])), name="scaled").graph
    assert graph.parameter_count == sum(p.numel() for p in Scaled(trains).parameters())
    (shared,) = graph.shared.values()
    assert (shared.shape.sizes, shared.frozen) == ((1,), not trains)
    (held,), (needed,) = shared.held, shared.needed
    for each in (held, needed):
        assert [int(bound) for bound in each.interval(np.array(0), np.array(1), 1)] == [0, 1]


def test_replayed_phases_are_the_additive_cost():
    """Eq. 1 of tables in bulk is the sum of the program's phases, to rounding."""
    graph = tied()
    model = CostModel(graph, star(DEVICES))
    for strategy in strategies(graph):
        program = program_of(model, strategy)
        replayed_s = replay(program, overlap=False, contention=False, iterations=1).iteration_s

        assert replayed_s == pytest.approx(additive_s(model, strategy), rel=1e-12)


def test_each_missing_element_travels_once_and_its_gradient_comes_back():
    """By sets of elements: what a device borrows, less what it holds itself, comes from devices that hold it."""
    graph = tied()
    (way,) = graph.shared
    table = np.arange(24 * 8).reshape(24, 8)
    for strategy in strategies(graph):
        program = program_of(CostModel(graph, star(DEVICES)), strategy)
        owner, borrower = program.spaces[way.producer], program.spaces[way.consumer]
        columns, rows = owner.degrees[0, 1], borrower.degrees[0, 1]  # the table's columns are channels of the words
        held = {d: set(np.array_split(table, columns, 1)[_channel(owner, p)].flat) for p, d in enumerate(owner.devices)}
        came = {d: held.get(d, set()).copy() for d in borrower.devices}
        sends = np.flatnonzero(program.moves_parameters)
        for task in sends[~program.backward[sends]]:
            (low, high), source = (program.region_low[task], program.region_high[task]), program.device[task]
            moved = set(table[low[0] : high[0], low[1] : high[1]].flat)

            assert moved <= held[source]
            assert not moved & came[program.peer[task]]
            came[program.peer[task]] |= moved
        for part, device in enumerate(borrower.devices):
            needed = set(np.array_split(table, rows, 0)[_channel(borrower, part)].flat)
            assert needed <= came[device] <= needed | held.get(device, set())
        back = sends[program.backward[sends]]
        ends = [program.device, program.peer, *program.region_low.T, *program.region_high.T]
        there = zip(*(column[sends[~program.backward[sends]]].tolist() for column in ends), strict=True)
        again = zip(*(column[back].tolist() for column in (ends[1], ends[0], *ends[2:])), strict=True)
        assert sorted(there) == sorted(again)


def _channel(space, part):
    """The index of a part along the channels."""
    return np.unravel_index(part, space.degrees[0])[1]


def test_the_search_counts_shared_parameters():
    """The least cost is that of its strategy, and no named one is cheaper."""
    graph = tied()
    model = CostModel(graph, star(DEVICES))
    found = search_layerwise(model)

    assert found.cost_s == pytest.approx(additive_s(model, found.strategy), rel=1e-12)
    assert all(found.cost_s <= additive_s(model, each) * (1 + 1e-12) for each in strategies(graph))


def test_frozen_parameters_are_kept_and_nothing_else():
    """Of a frozen layer memory holds the parameters alone; no gradient is computed, synchronised or applied."""
    graph = tied()
    inner = graph.index["inner"]
    layers = [replace(v, frozen=("weight", "bias")) if i == inner else v for i, v in enumerate(graph.layers)]
    frozen = ComputationGraph("frozen", graph.batch, layers)
    programs = [program_of(CostModel(g, star(DEVICES)), named_strategy("data", g, DEVICES)) for g in (graph, frozen)]
    for kind in ("weight_gradient", "update", "collective"):
        counts = [np.sum((p.kind == KINDS.index(kind)) & (p.layer == inner)) for p in programs]
        assert counts[0] > counts[1] == 0
    kinds = [("parameters",), ("parameters", "optimizer state"), ("parameters", "parameter gradients")]
    every = ("parameters", "optimizer state", "parameter gradients")
    lost = [
        peak_memory_bytes(programs[0], without=[k for k in every if k not in kept])
        - peak_memory_bytes(programs[1], without=[k for k in every if k not in kept])
        for kept in kinds
    ]
    # nothing reads the input of a layer without a weight gradient again
    assert lost[0] == pytest.approx(256.0)
    assert lost[1] - lost[0] == pytest.approx(72 * 4)
    assert frozen.parameter_count == graph.parameter_count


def test_updates_after_every_micro_batch_are_refused():
    """A layer that borrows would see half an update."""
    graph = tied()
    model = CostModel(graph, star(DEVICES))
    micro_batching = micro_batching_of(graph, 2, first="words", update_each=True)

    with pytest.raises(ConfigError, match="update_each must be off where layers share parameters: head borrows weight"):
        lower(model, spaces_of(graph, named_strategy("data", graph, DEVICES), DEVICES), micro_batching=micro_batching)


def mesh_space(layer, rng):
    """A layer on a mesh of eight devices, each axis of which splits an index or repeats."""
    indices = [None, *layer.parallel_dims, SUMMED]
    mesh = Mesh((("a", 2), ("b", 2), ("c", 2)), tuple(rng.permutation(8).tolist()))
    splits = [indices[i] for i in rng.integers(len(indices), size=3)]
    return space_of(layer, Configuration.on(mesh, splits, layer.parallel_dims), 8)


@pytest.mark.parametrize("seed", range(20))
def test_each_gradient_of_a_shared_parameter_is_counted_once(seed):
    """Replicas receive what adds up to the gradients of all parts that differ; equal replicas receive the same."""
    graph, rng = tied(), np.random.default_rng(seed)
    (way, shared), *_ = graph.shared.items()
    owner, borrower = (mesh_space(graph.layers[i], rng) for i in way[:2])
    makers = equal_gradients(borrower, shared.needed)
    gradients = rng.integers(1, 1000, len(makers))
    made = dict(zip(makers.ravel().tolist(), np.repeat(gradients, makers.shape[1]).tolist(), strict=True))
    taken = {device: np.zeros(shared.shape.sizes) for device in range(8)}
    regions = shared_gradient_regions(owner, borrower, shared, 8)
    for part, device, low, high in zip(regions.part, regions.device, regions.low, regions.high, strict=True):
        taken[int(owner.devices[part])][tuple(map(slice, low, high))] += made[int(device)]

    expected, total = (np.zeros(shared.shape.sizes) for _ in range(2))
    needed = needed_regions(borrower, shared.needed, shared.shape)
    for row, gradient in zip(makers, gradients, strict=True):
        part = borrower.part_on(8)[row[0]]
        expected[tuple(map(slice, needed.low[part], needed.high[part]))] += gradient
    for row in equal_gradients(owner, shared.held):
        assert all(np.array_equal(taken[row[0]], taken[device]) for device in row)
        total += taken[row[0]]
    np.testing.assert_array_equal(total, expected)
