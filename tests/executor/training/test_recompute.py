"""Training with recomputed segments: bit for bit that without, and within the memory foretold."""

import pytest
from plans import cluster_of, residual_block
from ranks import options, pool_of, train, whole

from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.models.builder import ModelBuilder
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.strategies.recomputation import KEEP_ACTIVATIONS, Recompute

pytestmark = pytest.mark.timeout(200)
RANKS, BATCH = 2, 8
FORWARD, TRANSFER = (KINDS.index(kind) for kind in ("forward", "transfer"))


ranks = pool_of(RANKS)


def classifier():
    """Normalised convolutions, a maximum, and linear layers with dropout."""
    net = ModelBuilder("classifier", batch=BATCH, image=(3, 12, 12))
    net.conv(4, 3, pad=1, batch_norm=True, name="one")
    net.conv(4, 3, pad=1, batch_norm=True, name="two")
    net.pool("max", 2, name="pool")
    net.conv(6, 3, pad=1, name="three")
    net.linear(12, activation="relu", dropout=0.5, name="hidden")
    net.linear(4, name="last")
    net.loss()
    return net.build()


def trained(ranks, graph, strategy, recompute, *, micro_batching=WHOLE_BATCH, batch_norm="local"):
    model = CostModel(graph, cluster_of("titanx-4", RANKS), batch_norm=batch_norm)
    program = lower(model, spaces_of(graph, strategy, RANKS), micro_batching=micro_batching, recompute=recompute)
    rows = ranks.run(train, program, options(), batch_norm == "reduced")
    losses = [sum(row[0][step] for row in rows) for step in range(options().steps)]
    return program, losses, whole(program, [row[2] for row in rows])


def same(ranks, graph, strategy, recompute, **changes):
    """The same losses and parameters to the last bit; the program that computed twice."""
    _, losses, parameters = trained(ranks, graph, strategy, KEEP_ACTIVATIONS, **changes)
    program, again, others = trained(ranks, graph, strategy, recompute, **changes)
    assert again == losses
    assert all((parameters[key] == others[key]).all() for key in parameters)
    return program


@pytest.mark.parametrize("name", ["data", "spatial", "model"])
@pytest.mark.parametrize("batch_norm", ["local", "reduced"])
def test_training_is_the_same_to_the_last_bit(ranks, name, batch_norm):
    """Dropout's masks, running statistics and sums of statistics included."""
    graph = classifier()
    strategy = named_strategy(name, graph, RANKS)
    program = same(ranks, graph, strategy, Recompute(("two", "hidden")), batch_norm=batch_norm)
    twice = program.recomputed & (program.kind == FORWARD)
    assert {graph.layers[i].name for i in program.layer[twice]} == {"one", "two", "pool", "three", "hidden"}
    assert (program.recomputed & (program.kind == TRANSFER)).any() == (name != "data")


@pytest.mark.parametrize("order", ["each", "all"])
def test_sub_batches_are_recomputed_one_by_one(ranks, order):
    graph = classifier()
    micro_batching = MicroBatching(parts=2, first=0, order=order)
    program = same(
        ranks,
        graph,
        named_strategy("spatial", graph, RANKS),
        Recompute(("two", "three")),
        micro_batching=micro_batching,
    )
    assert program.recomputed[program.kind == FORWARD].sum() == 4 * RANKS * 2


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
def test_pipelines_recompute_their_stages(ranks, order):
    graph = classifier()
    strategy = {
        layer.name: Configuration(dict.fromkeys(layer.parallel_dims, 1), (int(i > 2),))
        for i, layer in enumerate(graph.layers)
    }
    micro_batching = MicroBatching(parts=4, first=0, order=order, stages=(0, 3))
    program = same(ranks, graph, strategy, Recompute(("pool", "hidden")), micro_batching=micro_batching)
    assert program.recomputed[program.kind == FORWARD].sum() == 5 * 4
    assert not (program.recomputed & (program.kind == TRANSFER)).any()  # what comes from another stage is kept


def test_branches_read_what_was_recomputed(ranks):
    graph = residual_block(BATCH)
    names = [layer.name for layer in graph.layers]
    program = same(ranks, graph, named_strategy("spatial", graph, RANKS), Recompute((names[1], names[-3])))
    assert program.recomputed.any()


def test_float64_too(ranks):
    graph = classifier()
    double = type(graph)(graph.name, graph.batch, graph.layers, element_bytes=8)
    same(ranks, double, named_strategy("spatial", double, RANKS), Recompute(("three",)))
