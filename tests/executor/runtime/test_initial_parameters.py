"""First values of parameters: one network whatever the split, and the variance that theory asks for."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings, strategies as st

from executor.runtime.boxes import Box, whole_box
from executor.runtime.parameter_init import initial_parameters
from planner.models.builder import ModelBuilder


def network():
    net = ModelBuilder("test", batch=4, image=(6, 9, 9))
    net.conv(64, 3, activation="relu")
    net.conv(32, 3, groups=2, batch_norm=True, activation=None)
    net.batch_norm()
    net.linear(50, activation="tanh")
    net.linear(10, activation="leaky_relu")
    net.loss()
    return net.build()


GRAPH = network()


def values(index, boxes=None, *, seed=3, dtype=torch.float64):
    boxes = boxes or {p.name: whole_box(p.shape) for p in GRAPH.layers[index].parameters}
    return initial_parameters(GRAPH, index, boxes, seed=seed, dtype=dtype, device="cpu")


@pytest.mark.parametrize(("index", "variance"), [(0, 2 / 54), (1, 1 / 288), (3, 1 / 800), (4, 2 / 50)])
def test_weights_have_the_variance_of_he(index, variance):
    """Uniform on [-a, a): mean 0, variance a^2 / 3, and a as bound; leaky ReLU counts as a rectifier."""
    weight = values(index)["weight"]
    spread = 5 * math.sqrt(0.8 / weight.numel())  # five deviations of the variance of a uniform sample
    assert weight.var().item() == pytest.approx(variance, rel=spread)
    assert abs(weight.mean().item()) < 5 * math.sqrt(variance / weight.numel())
    assert weight.abs().max().item() <= math.sqrt(3 * variance)
    assert weight.abs().max().item() > 0.98 * math.sqrt(3 * variance)


def test_normalisations_start_as_the_identity_and_biases_at_zero():
    assert values(1)["norm_weight"].eq(1).all()
    assert values(1)["norm_bias"].eq(0).all()
    assert values(2)["weight"].eq(1).all()
    assert values(2)["bias"].eq(0).all()
    assert values(3)["bias"].eq(0).all()


def test_seeds_and_layers_differ_and_single_precision_rounds_the_same_network():
    assert not torch.equal(values(0)["weight"], values(0, seed=4)["weight"])
    assert not torch.equal(values(0)["weight"].flatten()[:50], values(3)["weight"].flatten()[:50])
    torch.testing.assert_close(
        values(4, dtype=torch.float32)["weight"].double(), values(4)["weight"], rtol=0, atol=1e-7
    )


@settings(max_examples=15)
@given(index=st.sampled_from([0, 1, 3, 4]), cuts=st.lists(st.integers(0, 64), max_size=4), column=st.integers(0, 3))
def test_slices_are_those_of_the_whole(index, cuts, column):
    """Any cut along the output channels, and along the inputs, gives parts of one tensor."""
    shape = next(p.shape for p in GRAPH.layers[index].parameters if p.name == "weight")
    rows = sorted({0, shape[0], *(min(cut, shape[0]) for cut in cuts)})
    parts = []
    for low, high in pairwise(rows):
        halves = [
            values(index, {"weight": Box((low, first, *(0 for _ in shape[2:])), (high, last, *shape[2:]))})["weight"]
            for first, last in ((0, column), (column, shape[1]))
        ]
        parts.append(torch.cat(halves, dim=1))
    assert torch.equal(torch.cat(parts), values(index)["weight"])


def test_only_the_parameters_that_are_held_are_made():
    assert set(values(1, {"norm_bias": Box((3,), (7,))})) == {"norm_bias"}
    assert values(1, {"norm_bias": Box((3,), (7,))})["norm_bias"].shape == (4,)
