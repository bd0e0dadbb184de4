"""Optimizers against torch.optim on whole tensors, whatever the split."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.optimizers import make_optimizer
from groundwork.errors import ConfigError

SPECS = [
    OptimizerSpec(learning_rate=0.1, momentum=0.0),
    OptimizerSpec(learning_rate=0.1, momentum=0.9, weight_decay=0.01),
    OptimizerSpec(name="adam", learning_rate=0.01),
    OptimizerSpec(name="adam", learning_rate=0.01, weight_decay=0.1),
]


def reference(spec, parameters):
    if spec.name == "sgd":
        rates = {"lr": spec.learning_rate, "momentum": spec.momentum}
        return torch.optim.SGD(parameters, weight_decay=spec.weight_decay, foreach=False, **rates)
    return torch.optim.Adam(parameters, lr=spec.learning_rate, weight_decay=spec.weight_decay, foreach=False)


def gradients(shapes, step, dtype=torch.float64):
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def trained(spec, shapes, steps):
    parameters = gradients(shapes, 999)
    optimizer = reference(spec, parameters)
    for step in range(steps):
        for parameter, gradient in zip(parameters, gradients(shapes, step), strict=True):
            parameter.grad = gradient
        optimizer.step()
    return parameters


@settings(max_examples=12)
@given(
    spec=st.sampled_from(SPECS),
    rows=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 9), max_size=3),
    resumed=st.integers(0, 4),
)
def test_any_split_trains_as_the_whole(spec, rows, cuts, resumed):
    """Slices of rows, empty ones among them, stepped apart and resumed from their state, give torch.optim's values."""
    shapes = [(rows, 3), (rows,)]
    bounds = sorted({0, rows, *(min(cut, rows) for cut in cuts)})
    whole = gradients(shapes, 999)
    parts = [[p[low:high].clone() for p in whole] for low, high in zip([0, *bounds], [*bounds, rows], strict=True)]
    optimizers = [make_optimizer(spec, part) for part in parts]
    for step in range(4):
        full = gradients(shapes, step)
        if step == resumed:
            optimizers = [reopened(spec, optimizer, step) for optimizer in optimizers]
        for optimizer, low, high in zip(optimizers, [0, *bounds], [*bounds, rows], strict=True):
            optimizer.step([gradient[low:high] for gradient in full])

    for number, expected in enumerate(trained(spec, shapes, 4)):
        joined = torch.cat([part[number] for part in parts])
        torch.testing.assert_close(joined, expected, rtol=1e-13, atol=1e-14)


def reopened(spec, optimizer, steps):
    """Another optimizer of the same parameters that only has the state tensors and the number of steps."""
    again = make_optimizer(spec, optimizer.parameters)
    for name, tensors in optimizer.state.items():
        for mine, theirs in zip(again.state[name], tensors, strict=True):
            mine.copy_(theirs)
    again.resume(steps)
    return again


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_strided_gradients_count_by_position(spec):
    """The fused kernels of torch ignore strides: a transposed gradient must not be read in memory order."""
    parameter, gradient = torch.ones(4, 6), torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).t()
    expected = parameter.clone()
    expected.grad = gradient.contiguous()
    reference(spec, [expected]).step()
    before = gradient.clone()

    make_optimizer(spec, [parameter]).step([gradient])

    torch.testing.assert_close(parameter, expected)
    assert torch.equal(gradient, before)


def test_a_layer_without_parameters_steps():
    make_optimizer(OptimizerSpec(), []).step([])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "lion"),
        ("learning_rate", 0.0),
        ("learning_rate", math.nan),
        ("learning_rate", math.inf),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("weight_decay", -1e-4),
        ("weight_decay", math.nan),
    ],
)
def test_settings_out_of_range_are_refused(field, value):
    with pytest.raises(ConfigError, match=rf"optimizer\.{field} must be .*, got {value!r}"):
        OptimizerSpec(**{field: value})
