"""Networks of experts: what travels to them and back, who holds them, and what a plan of them costs."""

from collections import Counter
from functools import cache

import numpy as np
import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.elimination.search_problem import strategy_cost
from planner.layouts.parameter_shards import shard_elements
from planner.lowering.program import KINDS
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.registry import load_model
from planner.plan.lowered_plan import lowered
from planner.search.search_tables import mesh_problem
from planner.simulation.additive_cost import additive_s
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.strategies.tensor import tensor_splits

BATCH, ROWS, WIDTH, INNER = 8, 64, 96, 128
SIZES = f"layers=2,hidden={WIDTH},heads=8,kv_heads=8,ffn={INNER},words=512,sequence={ROWS}"
GRADIENTS = ("activation_gradient", "weight_gradient")
WORDS = (
    "expert=8",
    "data=2,expert=4",
    "context=2,expert=4",
    "expert=4,tensor=2",
    "tensor=8",
    "tensor=4,sequence",
    "expert=4,tensor=2,slicing",
    "data=2,tensor=4,sequence,slicing",
)


@cache
def model():
    """A small network of eight experts on eight H100."""
    return CostModel(load_model(f"mixtral:{SIZES}", batch=BATCH, element_bytes=2), load_cluster("dgx-h100"), "library")


def program_of(words):
    strategy = named_strategy(words, model().graph, 8, model().cluster)
    return lowered(model(), strategy, check_memory=False)


def moved(program, name):
    """Collectives that move what a block reads: kind, direction and bytes of a device or a group."""
    rows = Counter()
    for task, each in program.collectives.items():
        reader = program.graph.layers[program.consumer[task]].name
        if program.moves_activations[task] and reader.startswith(name):
            rows[each.kind, "backward" if program.backward[task] else "forward", each.buffer_bytes] += 1
    return rows


def test_rows_travel_to_experts_and_back():
    """Lepikhin et al., 2021, Sec. 3.2: two all-to-alls forward and two backward, of two experts' rows for each row."""
    rows = BATCH / 8 * 2 * ROWS
    assert moved(program_of("expert=8"), "model.layers.1.mlp") == {
        ("all-to-all", "forward", 2 * rows * WIDTH): 2,
        ("all-to-all", "backward", 2 * rows * WIDTH): 2,
        ("all-to-all", "forward", 2 * rows): 1,  # the weights of their sums
        ("all-to-all", "backward", 2 * rows): 1,
    }


def test_a_capacity_factor_multiplies_what_experts_compute_send_and_hold():
    """Fedus et al., 2022, Eq. 3: an expert's rows are the even share times the factor, here 20 for 16."""
    graph = load_model(f"mixtral:{SIZES},capacity=20", batch=BATCH, element_bytes=2)
    prices = CostModel(graph, model().cluster, "library")
    program = lowered(prices, named_strategy("expert=8", graph, 8, prices.cluster), check_memory=False)
    even, rows = program_of("expert=8"), BATCH / 8 * 8 * 20
    found = moved(program, "model.layers.1.mlp")
    assert found["all-to-all", "forward", 2 * rows * WIDTH] == found["all-to-all", "backward", 2 * rows * WIDTH] == 2
    for name in ("einsum", "einsum_2", "mul", "einsum_3"):
        layer = graph.index[f"model.layers.1.mlp.{name}"]
        work = [each.graph.layers[layer].forward_flop() for each in (program, even)]
        assert work[0] == 1.25 * work[1]
    held = [peak_memory_bytes(each)[0] for each in (program, even)]
    more = (20 - 16) * 8 * 2 * BATCH / 8  # rows of a device, of two bytes an element
    kept = 2 * (WIDTH + 4 * INNER + WIDTH)  # in two blocks: read, gates before and behind SiLU, both factors, made
    assert held[0] - held[1] >= more * kept


@pytest.mark.parametrize(("expert", "tensor"), [(2, 4), (4, 2), (2, 2)])
def test_rows_travel_to_experts_that_tensors_split_too(expert, tensor):
    """Each all-to-all has the rows of the experts on its place of the axis of tensors; no region travels alone."""
    program = program_of(f"expert={expert},tensor={tensor}")
    rows = BATCH / expert * 2 * ROWS / tensor
    found = moved(program, "model.layers.1.mlp")
    for direction in ("forward", "backward"):
        assert found["all-to-all", direction, 2 * rows * WIDTH] == 2 * tensor
    assert not (program.kind == KINDS.index("transfer")).any()


def test_slices_of_experts_are_columns_and_rows():
    """Of two experts a device has halves: all rows of the experts travel to each, and are summed as a dense block's."""
    words = "expert=4,tensor=2,slicing"
    program, strategy = program_of(words), named_strategy(words, model().graph, 8, model().cluster)
    degrees = {layer.name: strategy[layer.name].degrees for layer in model().graph.layers}
    for name, index in (("einsum", "width"), ("einsum_2", "width"), ("mul", "width"), ("einsum_3", "summed")):
        assert degrees[f"model.layers.1.mlp.{name}"]["channel"] == 4
        assert degrees[f"model.layers.1.mlp.{name}"][index] == 2
    for layer, space in zip(program.graph.layers, program.spaces, strict=True):
        if layer.operation.has_experts:
            assert shard_elements(layer.parameters, space) == 2 * WIDTH * INNER / 2
    rows = 2 * BATCH * 2 * ROWS / 4 * WIDTH  # bytes of those of two of eight experts
    found = moved(program, "model.layers.1.mlp")
    for direction in ("forward", "backward"):
        assert found["all-to-all", direction, rows] == 2 * 2  # there and back, on two places of the axis of tensors
        assert found["all-reduce", direction, rows] == 4 * 1
    assert not (program.kind == KINDS.index("transfer")).any()


def test_experts_over_an_axis_of_tensors_are_summed():
    """As a dense block: an all-reduce of all rows forward, and one backward."""
    found = moved(program_of("tensor=8"), "model.layers.1")
    assert found["all-reduce", "forward", 2 * BATCH * ROWS * WIDTH] == 2
    assert found["all-reduce", "backward", 2 * BATCH * ROWS * WIDTH] == 2
    assert {kind for kind, _, size in found if size > 2 * BATCH * ROWS * 8} == {"all-reduce"}


@pytest.mark.parametrize(
    ("words", "shards", "others"), [("expert=8", 8, 1), ("data=2,expert=4", 4, 1), ("data=8", 1, 1)]
)
def test_devices_hold_their_experts_alone(words, shards, others):
    program = program_of(words)
    for layer, space in zip(program.graph.layers, program.spaces, strict=True):
        if layer.parameters:
            parts = shards if layer.operation.has_experts else others
            assert shard_elements(layer.parameters, space) * parts == sum(each.elements for each in layer.parameters)
    synced = {i for t in program.syncs_gradients.nonzero()[0] for i in program.layers_of(int(t))}
    experts = {i for i, layer in enumerate(program.graph.layers) if layer.operation.has_experts}
    trained = {i for i, layer in enumerate(program.graph.layers) if any(each.elements for each in layer.parameters)}
    assert synced == trained - (experts if words == "expert=8" else set())


@pytest.mark.parametrize("words", WORDS)
def test_the_additive_cost_is_that_of_the_phases(words):
    strategy = named_strategy(words, model().graph, 8, model().cluster)
    problem = mesh_problem(model(), spaces_of(model().graph, strategy, 8))
    tables_s = strategy_cost(problem, [0] * len(model().graph.layers))
    assert additive_s(model(), strategy) == pytest.approx(tables_s, rel=1e-9)


def test_work_of_experts_is_that_of_their_rows():
    """Two of eight experts for each row: a quarter of all products of all rows with all experts."""
    graph = model().graph
    layers = [layer for layer in graph.layers if layer.operation.has_experts]
    assert len(layers) == 6
    assert sum(layer.forward_flop() for layer in layers) == BATCH * 2 * 2 * 3 * 2 * ROWS * WIDTH * INNER
    for layer in layers:
        sizes = {dim: np.array([layer.output.size(dim), 1.0]) for dim in layer.output.dims}
        whole = {phase: layer.kernels(phase, sizes).flop for phase in ("forward", *GRADIENTS)}
        fused = layer.operation.fused_kernels
        for phase, flop in whole.items():
            assert flop[0] == whole["forward"][0]
            kernel = fused(phase, layer.input_shapes, layer.output, sizes, 2)
            assert kernel.flop[0] == flop[0]


def test_more_devices_than_experts_repeat_them():
    graph = model().graph
    assert tensor_splits(graph, 8)["model.layers.0.mlp.einsum"] == "channel"
    assert tensor_splits(graph, 16)["model.layers.0.mlp.einsum"] is None
    assert tensor_splits(graph, 2, expert=8)["model.layers.0.mlp.einsum"] is None


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("lenet5", "expert=2", "expert must be a number of experts that some layer has, got 2; no layer can be split"),
        (f"mixtral:{SIZES}", "expert=16", "expert must be a number of experts that some layer has, got 16"),
        (f"mixtral:{SIZES}", "data=2,expert=3", "batch must be a multiple of data=2 times expert=3"),
        (f"mixtral:{SIZES}", "expert=2,filter=2", "filter must be 1 beside expert"),
        ("lenet5", "tensor=2,slicing", "slicing must stand beside tensor=N, of a network of experts"),
        (f"mixtral:{SIZES}", "expert=4,slicing", "slicing must stand beside tensor=N, of a network of experts"),
        ("mixtral:experts=4,chosen=5", "data", "mixtral:chosen must be at most experts=4, got 5"),
        ("mixtral:sequence=32,capacity=33", "data", "mixtral:capacity must be at most sequence=32, got 33"),
        ("mixtral:sequence=30,experts=16", "data", "chosen \\* sequence / experts must be a whole number"),
    ],
)
def test_what_cannot_be_planned_is_refused(name, words, said):
    with pytest.raises(ConfigError, match=said):
        named_strategy(words, load_model(name, batch=96 if words == "expert=16" else 16), 64)
