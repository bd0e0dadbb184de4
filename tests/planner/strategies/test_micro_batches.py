"""Sub-batches: the same bytes and work in pieces, Eq. 1, order and dependencies."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import SMALL_MODELS, cluster_of, device_count, inception_module, program_of, residual_block, star

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import cluster_names
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration, all_configurations
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.simulation.additive_cost import additive_s
from planner.simulation.program_replay import replay
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching, micro_batching_of
from planner.strategies.named_strategies import named_strategy, spaces_of
from simulator.collectives.schemes import ALL_REDUCES


def lowered(model, strategy, micro_batching):
    return lower(model, spaces_of(model.graph, strategy, len(model.cluster.devices)), micro_batching=micro_batching)


@st.composite
def cut_questions(draw):
    """A cost model, a random strategy whose parts of a sub-batch are equal, and a cut."""
    spec = draw(st.sampled_from(cluster_names()))
    count = draw(st.integers(1, min(6, device_count(spec))))
    parts = draw(st.sampled_from([2, 3, 4]))
    graph = load_model(draw(st.sampled_from(SMALL_MODELS)), batch=parts * draw(st.sampled_from([1, 2, 4])))
    scheme, norm = draw(st.sampled_from(list(ALL_REDUCES))), draw(st.sampled_from(["local", "reduced"]))
    model = CostModel(graph, cluster_of(spec, count), scheme, norm)
    small, rng = graph.with_batch(graph.batch // parts), np.random.default_rng(draw(st.integers(0, 2**32)))
    first = draw(st.integers(0, len(graph.layers) - 1))
    samples = draw(st.sampled_from([n for n in range(1, count + 1) if small.batch % n == 0]))
    strategy = {}
    for layer in small.layers:
        space = all_configurations(layer.output, layer.parallel_dims, count)
        read = any(e.producer < first <= e.consumer for e in graph.consumers[graph.index[layer.name]])
        fits = [c for c in range(space.size) if not read or space.degrees[c, 0] == samples]
        chosen = space.configuration(int(rng.choice(fits)))
        strategy[layer.name] = Configuration(chosen.degrees, tuple(rng.permutation(count)[: chosen.parts].tolist()))
    order = draw(st.sampled_from(["each", "all"]))
    update_each = order == "each" and draw(st.booleans())
    return model, strategy, MicroBatching(parts=parts, first=first, order=order, update_each=update_each)


@settings(max_examples=10)
@given(cut_questions())
def test_replay_one_after_another_is_eq_1(question):
    model, strategy, micro_batching = question
    replayed = replay(lowered(model, strategy, micro_batching), overlap=False, contention=False, iterations=1)
    assert replayed.iteration_s == pytest.approx(additive_s(model, strategy, micro_batching), rel=1e-9)


@settings(max_examples=9)
@given(cut_questions())
def test_pieces_add_up_to_the_whole(question):
    """Every sample is computed once; what is exchanged once is what it was, what is exchanged each time k times it."""
    model, strategy, micro_batching = question
    whole, pieces = program_of(model, strategy), lowered(model, strategy, micro_batching)
    forward = KINDS.index("forward")
    for i in range(len(model.graph.layers)):
        mine = (pieces.kind == forward) & (pieces.layer == i)
        assert mine.sum() == micro_batching.of(i) * ((whole.kind == forward) & (whole.layer == i)).sum()
    gradients = [(p.kind == KINDS.index("collective")) & ~p.statistics for p in (whole, pieces)]
    for i in range(len(model.graph.layers)):
        bytes_of = [
            p.size_bytes[rows & (p.layer == i)].sum() for p, rows in zip((whole, pieces), gradients, strict=True)
        ]
        assert bytes_of[1] == pytest.approx(bytes_of[0] * (micro_batching.of(i) if micro_batching.update_each else 1))


def test_transfers_of_one_sub_batch_hide_under_the_arithmetic_of_another():
    """One-way traffic into one layer: with k sub-batches only the first transfer shows, if the rest is shorter."""
    graph = load_model("digits", batch=64)
    model = CostModel(graph, star(4))
    strategy = named_strategy("owt", graph, 4)
    uncut = replay(lowered(model, strategy, MicroBatching())).iteration_s
    micro_batching = replay(lowered(model, strategy, micro_batching_of(graph, 4, order="all"))).iteration_s
    bound = replay(lowered(model, strategy, micro_batching_of(graph, 4, order="all")), overlap=False).iteration_s
    assert micro_batching < bound
    assert uncut > 0


def test_layers_behind_the_cut_wait_for_their_own_sub_batch_only():
    graph = inception_module(batch=8)
    model = CostModel(graph, star(2))
    program = lowered(
        model, named_strategy("data", graph, 2), MicroBatching(parts=4, first=graph.index["fc"], order="all")
    )
    late = np.repeat(np.arange(program.size), np.diff(program.after_start))
    behind = np.array([program.micro_batching.of(i) > 1 for i in program.layer]) & (
        program.kind != KINDS.index("update")
    )
    both = behind[late] & behind[program.after] & (program.kind[late] != KINDS.index("collective"))
    assert both.any()
    assert (program.micro_batch[late[both]] == program.micro_batch[program.after[both]]).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parts": 3}, "sub_batches must be >= 1 and divide the batch of 8, got 3"),
        ({"parts": 2, "first": "fc9"}, "sub_batch_from must be a layer of lenet5, got 'fc9'"),
        ({"parts": 2, "order": "some"}, "sub_batch_order must be each or all"),
        ({"parts": 2, "order": "all", "update_each": True}, "update_each needs"),
    ],
)
def test_bad_cuts_are_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        micro_batching_of(load_model("lenet5", batch=8), **changes)


@pytest.mark.parametrize(
    "asked", [{"sub_batch_from": "fc1"}, {"sub_batch_order": "all"}, {"update_each": True}], ids=str
)
def test_nothing_is_asked_of_sub_batches_where_there_is_one(asked):
    graph = load_model("lenet5", batch=8)
    cluster, options = star(2), {"strategy": "data", **asked}
    assert make_plan(graph, cluster, strategy="data").micro_batching == WHOLE_BATCH
    assert make_plan(graph, cluster, strategy="data", sub_batches=2).micro_batching == micro_batching_of(graph, 2)
    with pytest.raises(ConfigError, match=r"must be left out where sub_batches is 1, got "):
        make_plan(graph, cluster, **options)


def test_parts_of_a_sub_batch_must_be_equal():
    graph = load_model("lenet5", batch=8)
    with pytest.raises(ConfigError, match="micro-batches of 1 samples: configuration of"):
        lowered(CostModel(graph, star(4)), named_strategy("data", graph, 4), micro_batching_of(graph, 8))


def test_a_sub_batch_holds_the_same_samples_everywhere():
    graph = residual_block(batch=8)
    strategy = dict(named_strategy("data", graph, 2))
    micro_batching = MicroBatching(parts=2, first=graph.index["sum"])
    assert lowered(CostModel(graph, star(2)), strategy, micro_batching).size
    strategy["second"] = Configuration({"channel": 2}, (0, 1))
    with pytest.raises(ConfigError, match="layers read by micro-batches must have one degree in samples"):
        lowered(CostModel(graph, star(2)), strategy, micro_batching)
