"""Imported networks, divided over four processes in every way that plans may, against the module in plain PyTorch."""

from functools import cache
from itertools import cycle

import numpy as np
import pytest
import torch
from imported_networks import NETWORKS
from plans import program_of, random_strategy, star
from ranks import options, pool_of, train, whole
from undivided import first_state, wide

from executor.checks.program_check import check_program
from executor.data.load import load_data
from executor.runtime.boxes import whole_box
from executor.runtime.optimizer_spec import OptimizerSpec
from planner.cost.cost_model import CostModel
from planner.importing.graph_of import imported_graph
from planner.lowering.lower_strategy import lower
from planner.search.pipeline_strategy import Pipeline, pipeline_strategy
from planner.strategies.micro_batches import WHOLE_BATCH
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.strategies.recomputation import recompute_of
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

pytestmark = pytest.mark.timeout(300)
RANKS, FEWEST, SEED, STEPS = 4, 2, 5, 2
SGD = OptimizerSpec(learning_rate=0.05, momentum=0.9)

ranks = pool_of(RANKS)


@cache
def imported(name):
    """The graph of a network in float64."""
    network = NETWORKS[name]
    trace = trace_of(network.make(), input_specs([network.sizes]))
    return wide(imported_graph(trace, name=name, loss=network.loss).graph)


@cache
def trained_module(name):
    """Losses and parameters of the module, trained in plain PyTorch from what a run starts from."""
    network, graph = NETWORKS[name], imported(name)
    module = network.make().double()
    keys = {(layer.name, each): key for layer in graph.layers for each, key in layer.keys}
    module.load_state_dict(first_state(graph, SEED), strict=False)
    optimizer = torch.optim.SGD(module.parameters(), lr=SGD.learning_rate, momentum=SGD.momentum)
    data, losses = load_data("generated", graph, seed=SEED, dtype=torch.float64, device="cpu"), []
    shape = graph.layers[0].input_shapes[0].sizes
    for number in range(STEPS):
        inputs, targets = data.inputs(number, whole_box(shape)), data.targets(number, 0, graph.batch)
        loss = network.loss_of(module(network.inputs(inputs)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    parameters = dict(module.named_parameters())
    return losses, {place: parameters[key].detach().numpy() for place, key in keys.items()}


def strategy_of(name, graph):
    """A strategy, and the devices that it takes: two show what a split of one kind does, and all how splits meet."""
    if name == "random":
        return random_strategy(graph, RANKS, np.random.default_rng(len(graph.name))), RANKS
    devices = RANKS if "," in name else FEWEST
    return named_strategy(name, graph, devices), devices


DIVIDED = [name for name in NETWORKS if name not in ("windows", "crossing")]
CASES = [(name, "random") for name in DIVIDED]
CASES += list(zip(DIVIDED, cycle(["filter", "spatial"])))  # random strategies have splits of the other kind, too
CASES += [(name, "data") for name in ("resnet-18", "gpt2-tiny")]  # sums, whatever layers
CASES += [("gpt2-tiny", "data=2,filter=2")]  # random ones divide so, too
CASES += [("gpt2-published", "tensor=2")]  # one product makes queries, keys and values


def check_trained(ranks, name, program):
    """Losses and parameters after two steps are those of the module, to 1e-9."""
    check_program(program, len(program.cluster.devices))
    losses, _, slices = zip(
        *ranks.run(train, program, options(seed=SEED, steps=STEPS, optimizer=SGD), True), strict=True
    )
    expected, parameters = trained_module(name)

    np.testing.assert_allclose(np.sum(losses, axis=0), expected, rtol=1e-9)
    for place, value in whole(program, slices).items():
        np.testing.assert_allclose(
            value, parameters[place].reshape(value.shape), rtol=1e-9, atol=1e-10, err_msg=str(place)
        )


@pytest.mark.parametrize(("name", "strategy"), [*CASES, ("windows", "random")])
def test_divided_training_is_that_of_the_module(ranks, name, strategy):
    """A network trains as its module does, however it is divided."""
    graph = imported(name)
    chosen, devices = strategy_of(strategy, graph)
    check_trained(ranks, name, program_of(CostModel(graph, star(devices), "ring", "reduced"), chosen))


@pytest.mark.parametrize(("name", "recomputed"), [("gpt2-tiny", 2), ("bert-tiny", 2 * 4)])
def test_attention_alone_is_computed_again(ranks, name, recomputed):
    """One layer a block, or two products with the scaled scores and their softmax between."""
    graph = imported(name)
    spaces = spaces_of(graph, named_strategy("data", graph, RANKS), RANKS)
    again = recompute_of(graph, "selective", WHOLE_BATCH)
    program = lower(CostModel(graph, star(RANKS), "ring", "reduced"), spaces, recompute=again)

    assert len({*program.layer[program.recomputed].tolist()}) == recomputed
    check_trained(ranks, name, program)


def test_tied_parameters_travel_between_stages(ranks):
    """The first stage trains the table of words, the last one borrows it, and computes its gradients late."""
    graph = imported("gpt2-tiny")
    model = CostModel(graph, star(RANKS), "ring", "reduced")
    strategy, micro_batching = pipeline_strategy(model, Pipeline(micro_batches=2, schedule="zero-bubble"))
    program = lower(model, spaces_of(graph, strategy, RANKS), micro_batching=micro_batching)

    assert program.moves_parameters.sum() == 2
    check_trained(ranks, "gpt2-tiny", program)
