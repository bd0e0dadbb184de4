"""Networks whose layers split their input channels, over real processes, against the undivided network."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plans import cluster_of, inception_module, residual_block
from ranks import Ranks, options, train, whole
from reducing import random_reducing_strategy
from undivided import undivided_run, wide

from executor.optimizers import OptimizerSpec
from planner.costs import CostModel
from planner.cut import WHOLE
from planner.lowering import lower
from planner.models import ModelBuilder
from planner.program import KINDS
from planner.strategies import applied

pytestmark = pytest.mark.timeout(300)
MOST_RANKS = 4
TRANSFER = KINDS.index("transfer")
OPTIMIZERS = [OptimizerSpec(momentum=0.9, weight_decay=1e-3), OptimizerSpec(name="adam", learning_rate=1e-3)]


@pytest.fixture(scope="module")
def ranks():
    pool = Ranks(MOST_RANKS)
    yield pool
    pool.close()


def line():
    """1-D."""
    net = ModelBuilder("line", batch=4, image=(4, 19))
    net.conv(8, 5, stride=2, pad=2)
    net.conv(8, 3, pad=1, dilation=2, activation="tanh")
    net.conv(4, 3, stride=3, bias=False, activation=None)
    net.linear(8, activation="relu", dropout=0.4)
    net.linear(4)
    net.loss()
    return net.build()


def plane():
    """2-D, with normalisation, pooling and a convolution of groups."""
    net = ModelBuilder("plane", batch=4, image=(2, 12, 12))
    net.conv(8, 3, pad=1, batch_norm=True)
    net.conv(8, 3, stride=2, pad=1, batch_norm=True)
    net.conv(8, 3, pad=1, groups=2)
    net.pool("average", 2)
    net.linear(12, activation="leaky_relu")
    net.linear(4)
    net.loss("mean_squared_error")
    return net.build()


def volume():
    """3-D."""
    net = ModelBuilder("volume", batch=2, image=(4, 6, 7, 6))
    net.conv(8, 3, pad=1, stride=2, activation="leaky_relu")
    net.conv(4, 2, activation="sigmoid")
    net.linear(4)
    net.loss("mean_squared_error")
    return net.build()


GRAPHS = {"line": line, "plane": plane, "volume": volume, "inception": inception_module, "residual": residual_block}


def lowered(graph, strategy, count, *, exchange="ring", cut=WHOLE):
    model = CostModel(graph, cluster_of("titanx-4", count), exchange, "reduced")
    model, spaces, cut = applied(model, strategy, cut)
    return lower(model, spaces, cut=cut)


def of_the_model(program, slices):
    """Whole parameters by the names that they have in the model."""
    owner = {layer.name: program.graph.model_layer(i).name for i, layer in enumerate(program.graph.layers)}
    return {(owner[layer], name): value for (layer, name), value in whole(program, slices).items()}


def check(ranks, graph, program, chosen, *, rtol=1e-10):
    """Train and compare; returns what was measured."""
    losses, measured, slices = zip(*ranks.run(train, program, chosen, True), strict=True)
    expected, parameters = undivided_run(graph, chosen.steps, chosen.optimizer, chosen.seed)
    np.testing.assert_allclose(np.sum(losses, axis=0), expected, rtol=rtol)
    found = of_the_model(program, slices)
    assert set(found) == set(parameters)
    for key, value in found.items():
        np.testing.assert_allclose(value, parameters[key].detach(), rtol=rtol, atol=rtol / 100, err_msg=str(key))
    return measured


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(list(GRAPHS)),
    count=st.sampled_from([2, 4]),
    exchange=st.sampled_from(["ring", "ps", "ps-spread", "halving"]),
    seed=st.integers(0, 2**32),
    optimizer=st.sampled_from(OPTIMIZERS),
    overlap=st.booleans(),
)
def test_partial_sums_train_the_undivided_network(ranks, name, count, exchange, seed, optimizer, overlap):
    graph = wide(GRAPHS[name]())
    strategy = random_reducing_strategy(graph, count, np.random.default_rng(seed))
    program = lowered(graph, strategy, count, exchange=exchange)
    check(ranks, graph, program, options(seed=seed % 1000, optimizer=optimizer, overlap=overlap), rtol=1e-9)
