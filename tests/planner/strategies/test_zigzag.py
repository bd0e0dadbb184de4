"""Zigzag order of positions: equal work under a causal mask, the price of that, and networks that cannot have it."""

import numpy as np
import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.operations.products import Attention
from planner.plan.compare_strategies import compare
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan
from planner.strategies.zigzag import in_zigzag, zigzag_order


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 8])
def test_parts_have_equal_scores(parts):
    """Counted in the mask itself; of the parts of one run each, the last has 2 - 1/N times the mean."""
    order, scores = zigzag_order(48, parts), np.tri(48).sum(axis=1)
    assert sorted(order.tolist()) == list(range(48))
    assert (order.reshape(2 * parts, -1)[:, 1:] - order.reshape(2 * parts, -1)[:, :-1] == 1).all()
    shares = scores[order].reshape(parts, -1).sum(axis=1)
    assert (shares == scores.sum() / parts).all()


def attention_of(graph):
    return next(layer for layer in graph.layers if isinstance(layer.operation, Attention))


def flop_of(layer, phase, parts):
    part = {dim: np.array([float(size)]) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
    part["length"] = part["length"] / parts
    kernels = layer.operation.fused_kernels(phase, layer.input_shapes, layer.output, part, 2)
    return float(kernels.flop[0])


@pytest.mark.parametrize("phase", ["forward", "activation_gradient"])
def test_a_part_is_priced_as_its_share_of_the_whole(phase):
    graph = load_model("llama-1b:layers=1,sequence=4096", batch=1)
    whole = flop_of(attention_of(graph), phase, 1)
    for parts in (2, 4, 8):
        assert flop_of(attention_of(in_zigzag(graph, parts)), phase, parts) == pytest.approx(whole / parts, rel=1e-12)
        assert flop_of(attention_of(graph), phase, parts) == pytest.approx((2 - 1 / parts) * whole / parts, rel=1e-12)


def test_a_plan_moves_the_same_and_is_faster():
    """The messages are those of runs of positions; only attention takes less, and no note says that parts differ."""
    graph = load_model("llama-1b:layers=2,sequence=16384", batch=1, element_bytes=2)
    cluster = load_cluster("dgx-h100")
    runs, zigzag = (make_plan(graph, cluster, strategy=words) for words in ("context=8", "context=8,zigzag"))
    programs = [lower_plan(plan, graph, cluster) for plan in (runs, zigzag)]
    assert programs[0].moved_bytes == programs[1].moved_bytes
    attends = [layer.operation.kind == "attention" for layer in graph.layers]
    for plan, program in zip((runs, zigzag), programs, strict=True):
        assert plan.model_digest == graph.digest
        assert program.graph.zigzag == (8 if plan is zigzag else 1)
    times = [program.by_layer(program.work_s) for program in programs]
    assert (times[1] < times[0]).tolist() == attends
    assert zigzag.simulated_s < runs.simulated_s
    assert zigzag.additive_s < runs.additive_s
    assert any("zigzag beside context=N" in note for note in runs.notes)
    assert not any("causal" in note for note in zigzag.notes)


def test_a_comparison_prices_both_orders():
    graph, cluster = load_model("gpt2:layers=1", batch=8), load_cluster("dgx-a100")
    rows = {row.name: row for row in compare(graph, cluster, ["context=8", "context=8,zigzag"]).strategies}
    assert rows["context=8,zigzag"].simulated_s < rows["context=8"].simulated_s


@pytest.mark.parametrize(
    ("model", "words", "said"),
    [
        ("gpt2:layers=1", "data=8,zigzag", "zigzag must stand beside context=N"),
        ("gpt2:layers=1", "context=4,ulysses,zigzag", "without ulysses"),
        ("bert-base", "context=4,zigzag", "causal attention, not bert-base"),
        ("gpt2:layers=1,sequence=1020", "context=4,zigzag", "2 x context = 8 divides, got 1020"),
        ("mixtral:layers=1", "context=4,zigzag", "compute each position by itself"),
    ],
)
def test_what_cannot_have_the_order_is_refused(model, words, said):
    with pytest.raises(ConfigError, match=said):
        make_plan(load_model(model, batch=8), load_cluster("dgx-a100"), strategy=words)
