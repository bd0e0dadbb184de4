"""Tensor parallelism of language models: the collectives that Megatron's papers count, from index spaces alone."""

from collections import Counter
from functools import cache

import numpy as np
import pytest

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.cost.library_rounds import library_collective_s
from planner.graph.shapes import REPEATED, SUMMED
from planner.layouts.parameter_shards import shard_elements
from planner.lowering.program import KINDS
from planner.models.registry import load_model
from planner.plan.lowered_plan import lowered
from planner.simulation.program_replay import replay
from planner.strategies.micro_batches import MicroBatching
from planner.strategies.named_strategies import named_strategy

BATCH, LENGTH, HIDDEN, BLOCKS = 8, 2048, 2048, 16


@cache
def program_of(words, model="llama-1b", micro_batches=1):
    """Lower a network on eight H100."""
    graph, cluster = load_model(model, batch=BATCH, element_bytes=2), load_cluster("dgx-h100")
    strategy = named_strategy(words, graph, 8, cluster)
    micro = MicroBatching(parts=micro_batches) if micro_batches > 1 else MicroBatching()
    return lowered(CostModel(graph, cluster, "library"), strategy, micro_batching=micro, check_memory=False)


def collectives(program, block, elements=BATCH * LENGTH * HIDDEN):
    """Count the collectives of activations that begin at layers of a block, by kind and direction."""
    names = [layer.name for layer in program.graph.layers]
    rows = Counter()
    for task, each in program.collectives.items():
        if program.moves_activations[task] and f"{names[program.consumer[task]]}.".startswith(f"{block}."):
            rows[each.kind, "backward" if program.backward[task] else "forward"] += 1
            assert each.buffer_bytes == 2 * elements
    return rows


def test_a_block_has_four_all_reduces():
    # Shoeybi et al., 2019, Fig. 4: one after attention and one after the products, forward and backward
    found = collectives(program_of("tensor=8"), "model.layers.1")
    assert found == {("all-reduce", "forward"): 2, ("all-reduce", "backward"): 2}


def test_one_product_of_queries_keys_and_values_is_divided_by_heads():
    # each device has 3 of GPT-2's 12 heads: their queries, keys and values
    program = program_of("tensor=4", "gpt2")
    found = collectives(program, "transformer.h.1", BATCH * 1024 * 768)
    assert found == {("all-reduce", "forward"): 2, ("all-reduce", "backward"): 2}
    layer, space = next(
        (layer, space)
        for layer, space in zip(program.graph.layers, program.spaces, strict=True)
        if layer.name == "transformer.h.1.attn.c_attn"
    )
    assert shard_elements(layer.parameters, space) == (768 + 1) * 3 * 768 / 4
    with_sequence = collectives(program_of("tensor=4,sequence", "gpt2"), "transformer.h.1", BATCH * 1024 * 768)
    assert sum(with_sequence.values()) == 8


def test_with_sequence_it_gathers_and_scatters_four_times_each():
    # Korthikanti et al., 2023, Sec. 4.2.2
    found = collectives(program_of("tensor=8,sequence"), "model.layers.1")
    assert found == {
        ("all-gather", "forward"): 2,
        ("reduce-scatter", "forward"): 2,
        ("all-gather", "backward"): 2,
        ("reduce-scatter", "backward"): 2,
    }


@pytest.mark.parametrize("words", ["tensor=8", "tensor=8,sequence"])
def test_products_are_divided_and_nothing_else_moves(words):
    program = program_of(words)
    for layer, space in zip(program.graph.layers, program.spaces, strict=True):
        assert len(space.devices) == 8
        if layer.parameters and layer.operation.kind in ("matrix_product", "embedding"):
            assert shard_elements(layer.parameters, space) == pytest.approx(
                sum(p.elements for p in layer.parameters) / 8, rel=1e-12
            )
    sent = np.flatnonzero(program.kind == KINDS.index("transfer"))
    assert not len(sent)


@pytest.mark.parametrize("words", ["tensor=8", "tensor=8,sequence"])
def test_the_loss_of_divided_words_moves_two_numbers_a_position(words):
    # Shoeybi et al., 2019, Sec. 3: a batch times its positions in place of that times the words
    program = program_of(words)
    (task,) = np.flatnonzero(program.statistics)
    gather = program.collectives[int(task)]
    assert (gather.kind, gather.devices, gather.buffer_bytes) == ("all-gather", tuple(range(8)), BATCH * LENGTH * 8 * 8)
    assert program.spaces[-1].largest_part()["channel"] == program.graph.layers[-1].output.size("channel") / 8


def test_work_is_that_of_one_device_divided():
    whole, split = program_of("data=1"), program_of("tensor=8")
    products = [i for i, layer in enumerate(whole.graph.layers) if layer.operation.kind == "matrix_product"]
    for i in products[:7]:
        layer = whole.graph.layers[i]
        flop = [layer.kernels("forward", space.largest_part()).flop[0] for space in (whole.spaces[i], split.spaces[i])]
        assert flop[0] == pytest.approx(8 * flop[1])


def test_gradients_of_what_is_repeated_are_not_summed():
    assert not any(program_of("tensor=8").syncs_gradients)
    summed = {
        i
        for t in np.flatnonzero(program_of("tensor=8,sequence").syncs_gradients)
        for i in program_of("tensor=8,sequence").layers_of(int(t))
    }
    norms = {
        i
        for i, layer in enumerate(program_of("tensor=8").graph.layers)
        if layer.parameters and layer.operation.kind == "feature_norm"
    }
    assert summed == norms  # positions are split: each device has a share of their gradients


def test_data_beside_tensor_sums_over_replicas_alone():
    program = program_of("data=2,tensor=4")
    for task, each in program.collectives.items():
        if program.syncs_gradients[task]:
            assert [device % 4 for device in each.devices] == [each.devices[0] % 4] * 2
        elif program.moves_activations[task]:
            assert len({device // 4 for device in each.devices}) == 1
            assert len(each.devices) == 4


@pytest.mark.parametrize(("words", "all_reduces"), [("context=8", 0), ("context=4,tensor=2", 4)])
def test_context_parallelism_gathers_keys_and_values(words, all_reduces):
    """Beside tensor parallelism its all-reduces stay, of each device's positions; nothing else moves."""
    program, found = program_of(words, "llama-1b:layers=2"), Counter()
    keys = 8 * 64  # channels of keys, and of values, in a quarter of the heads of queries
    channels = {"all-gather": keys, "reduce-scatter": keys, "all-reduce": HIDDEN}
    for task, each in program.collectives.items():
        name = program.graph.layers[program.consumer[task]].name
        if program.moves_activations[task] and f"{name}.".startswith("model.layers.1."):
            groups = 8 / len(each.devices)
            found[each.kind] += 1 / groups
            assert each.buffer_bytes == BATCH * LENGTH * channels[each.kind] * 2 / groups
    assert found == Counter({"all-gather": 2, "reduce-scatter": 2, "all-reduce": all_reduces})
    assert not (program.kind == KINDS.index("transfer")).any()


@pytest.mark.parametrize(("words", "tensor"), [("context=8,ulysses", 1), ("context=2,tensor=4,ulysses", 4)])
def test_ulysses_moves_positions_to_heads_and_back(words, tensor):
    """Jacobs et al., 2023, Sec. 3.1: four all-to-alls a block, of queries, keys, values, and of what attention makes.

    A group of them has an equal share of all heads, and of all positions.
    """
    program, found = program_of(words, "llama-1b:layers=2"), Counter()
    context = 8 // tensor
    for task, each in program.collectives.items():
        name = program.graph.layers[program.consumer[task]].name
        if program.moves_activations[task] and f"{name}.".startswith("model.layers.1."):
            assert each.kind == "all-to-all" or (each.kind == "all-reduce" and len(each.devices) == tensor)
            if each.kind == "all-to-all":
                assert len(each.devices) == context
                found[each.buffer_bytes * 8 / (BATCH * LENGTH * 2)] += 1 / tensor
    assert found == {HIDDEN: 4, 8 * 64: 4}  # backward as well, of 8 heads of keys and values of 64 channels
    assert not (program.kind == KINDS.index("transfer")).any()


def test_ulysses_beside_sequence():
    """Its four all-to-alls of each place of ``tensor``, beside the gathers and scatters of Megatron's positions."""
    program, found = program_of("context=2,tensor=4,sequence,ulysses", "llama-1b:layers=2"), Counter()
    for task, each in program.collectives.items():
        name = program.graph.layers[program.consumer[task]].name
        if program.moves_activations[task] and f"{name}.".startswith("model.layers.1."):
            groups = 8 / len(each.devices)
            found[each.kind, each.buffer_bytes * 8 / (BATCH * LENGTH * 2)] += 1 / groups
    to_heads = {("all-to-all", HIDDEN): 4, ("all-to-all", 8 * 64): 4}
    assert found == to_heads | {(kind, 4 * HIDDEN): 4 for kind in ("all-gather", "reduce-scatter")}
    assert not (program.kind == KINDS.index("transfer")).any()


@pytest.mark.parametrize(
    "words", ["tensor=8", "tensor=8,sequence", "data=2,tensor=4,sequence", "context=8", "context=2,tensor=4,sequence"]
)
def test_collectives_cost_what_the_library_takes_and_expand_into_as_many_bytes(words):
    graph, cluster = load_model("llama-1b:layers=2", batch=BATCH, element_bytes=2), load_cluster("dgx-h100")
    prices, strategy = CostModel(graph, cluster, "library"), named_strategy(words, graph, 8, cluster)
    program, messages = (
        lowered(prices, strategy, check_memory=False, collectives=form) for form in ("activity", "steps")
    )
    in_turn = replay(program, overlap=False, contention=False, iterations=1)
    taken_s = (in_turn.schedule.end_s - in_turn.schedule.ready_s)[in_turn.program_graph.task_of[0]]
    for task, each in program.collectives.items():
        if program.moves_activations[task]:
            alone_s = library_collective_s(prices.network, each.kind, each.devices, np.array(each.buffer_bytes))
            assert taken_s[task] == pytest.approx(float(alone_s), rel=1e-12)
    assert messages.moved_bytes == pytest.approx(program.moved_bytes, rel=1e-12)
    assert replay(messages).iteration_s == pytest.approx(replay(program).iteration_s, rel=0.01)


def test_what_a_rule_says_of_indices():
    strategy = named_strategy("tensor=4,sequence", load_model("bert-base", batch=8), 4)
    layer = "bert.encoder.layer.0."
    assert strategy[layer + "attention.self.query"].splits == ("channel",)
    assert strategy[layer + "attention.self"].splits == ("channel",)
    assert strategy[layer + "attention.output.dense"].splits == (SUMMED,)
    assert strategy[layer + "attention.output.LayerNorm"].splits == ("length",)
    assert strategy["bert.embeddings.word_embeddings"].splits == (SUMMED,)
    assert named_strategy("tensor=4", load_model("bert-base", batch=8), 4)[layer + "output"].degrees[REPEATED] == 4


def test_with_sequence_shared_keys_leave_attention_to_heads():
    """What would be repeated splits positions, and nothing else: devices that share a head of keys gather them."""
    graph = load_model("llama-1b:layers=1,kv_heads=4", batch=8)
    alone, beside = (named_strategy(words, graph, 8) for words in ("tensor=8", "tensor=8,sequence"))
    kept = [layer.name for layer in graph.layers if alone[layer.name].splits != (None,)]
    assert "model.layers.0.self_attn.scaled_dot_product_attention" in kept
    assert [beside[name].splits for name in kept] == [alone[name].splits for name in kept]
