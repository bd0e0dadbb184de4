"""Parts of imported layers, each on the regions that the plan gives it, against the module and the undivided layer."""

import numpy as np
import pytest
import torch
from importing.imported_modules import CASES, traced
from torch import nn
from torch.nn import functional
from undivided import wide

from executor.checks.imported_layers import check_imported
from executor.layers.base import TrainingStep
from executor.layers.factory import part_layer
from executor.layers.kernels.layout import of_one_sample
from executor.runtime.boxes import whole_box
from groundwork.errors import ConfigError
from planner.cost.software import Software
from planner.graph.shapes import SUMMED
from planner.importing.graph_of import imported_graph
from planner.layouts.configurations import Configuration, space_of
from planner.layouts.mesh import Mesh
from planner.models.registry import load_model
from planner.operations.mapped import Mapped
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

TYPE = torch.float64
DRAWS = 2


def computed(graph, index, degrees, inputs, parameters, gradient):
    """A layer's output, and gradients of inputs and parameters, put together from its parts."""
    layer = graph.layers[index]
    degrees = {dim: degree for dim, degree in degrees.items() if dim in layer.parallel_dims}
    space = space_of(layer, Configuration(degrees, tuple(range(np.prod([*degrees.values()])))), 64)
    if isinstance(layer.operation, Mapped):
        check_imported(graph, index, space)
    output = torch.full(layer.output.sizes, torch.nan, dtype=TYPE)
    before = [torch.zeros_like(each) for each in inputs]
    weights = {name: torch.zeros_like(each) for name, each in parameters.items()}
    for number in range(len(space.devices)):
        part = part_layer(graph, index, space, number, dtype=TYPE, device="cpu")
        boxes = part.parameters
        own = part.held.within(whole_box(output.shape))
        regions = [x[b.within(whole_box(x.shape))] for x, b in zip(inputs, part.inputs, strict=True)]
        slices = {name: parameters[name][box.within(whole_box(parameters[name].shape))] for name, box in boxes.items()}
        with torch.no_grad():
            output[own] = part.forward([x.clone() for x in regions], slices, TrainingStep(0, 0))
            part.begin_backward(gradient[own])
            for total, box, each in zip(before, part.inputs, part.activation_gradient(), strict=True):
                total[box.within(whole_box(total.shape))] += each
            for name, each in part.weight_gradient().items():
                weights[name][boxes[name].within(whole_box(weights[name].shape))] += each
            part.release()
    return [output, *before, *weights.values()]


def drawn(layer, rng):
    """Random degrees of up to eight parts."""
    degrees = {}
    for dim in layer.output.dims:
        room = 8 // np.prod([1, *degrees.values()])
        fits = [n for n in (1, 2, 3, 4) if layer.output.size(dim) % n == 0 and n <= room]
        degrees[dim] = int(rng.choice(fits)) if dim in layer.parallel_dims else 1
    return degrees


def divided(layer):
    """The dimensions in which a layer may be split to be run."""
    steps = getattr(layer.operation, "computes", ())
    if not any(step.form == "whole" for step in steps):
        return layer.output.dims
    return ("sample", "channel") if "pool" in steps[0].call or "upsample" in steps[0].call else ("sample",)


@pytest.mark.parametrize("name", [name for name in CASES if name != "merged frames"])
def test_parts_compute_what_the_module_does(name):
    """Undivided layers give the module's output; parts under random degrees give theirs, and their gradients."""
    case, rng = CASES[name], np.random.default_rng(len(name))
    torch.manual_seed(len(name))
    module, shape = case.make().double(), (4, *case.shape[1:])
    graph = wide(imported_graph(traced(name), name=name, loss="none").graph.with_batch(4))
    data, state = torch.randn(shape, dtype=TYPE), module.state_dict()
    outputs = {"input": data.movedim(-1, 1) if case.last else data}
    for index, layer in enumerate(graph.layers):
        inputs, keys = [outputs[source] for source in layer.inputs], dict(layer.keys)
        parameters = {each.name: state[keys[each.name]].view(each.shape) for each in layer.parameters}
        gradient = torch.randn(layer.output.sizes, dtype=TYPE)
        given = (inputs, parameters, gradient)
        expected = computed(graph, index, dict.fromkeys(layer.output.dims, 1), *given)
        outputs[layer.name] = expected[0]
        for _ in range(DRAWS):
            degrees = drawn(layer, rng)
            if any(n > 1 and dim not in divided(layer) for dim, n in degrees.items()):
                with pytest.raises(ConfigError, match="cannot be split in"):
                    computed(graph, index, degrees, *given)
                continue
            found = computed(graph, index, degrees, *given)
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11, msg=f"{layer.name} {degrees}")
    result = module(data)
    last = name == "patches" or (case.last and name != "einsum")
    moved = result.movedim(-1, 1) if last else result
    torch.testing.assert_close(outputs[graph.layers[-1].name].reshape(moved.shape), moved, rtol=1e-9, atol=1e-11)


class Scores(nn.Module):
    """Words, one of which stands for none, and a product of two dimensions of their channels."""

    def __init__(self):
        super().__init__()
        self.words, self.scores = nn.Embedding(7, 6, padding_idx=4), nn.Linear(6, 5)

    def forward(self, ids):
        return self.scores(self.words(ids).tanh())


@pytest.mark.parametrize("slices", [2, 3, 4])
def test_slices_of_sums_add_up(slices):
    """Partial sums add up to the output; each part has the gradients of its slices, and that of the bias."""
    graph = wide(imported_graph(trace_of(Scores(), input_specs(["3x4:int"])), name="scores").graph)
    rng = torch.Generator().manual_seed(slices)
    for name in ("words", "scores"):
        layer, index = graph.layers[graph.index[name]], graph.index[name]
        mesh = Mesh((("tensor", slices),), tuple(range(slices)))
        space = space_of(layer, Configuration.on(mesh, (SUMMED,), layer.parallel_dims), slices)
        check_imported(graph, index, space)
        shape, gradient = layer.input_shapes[0].sizes, torch.randn(layer.output.sizes, dtype=TYPE, generator=rng)
        values = torch.randint(7, shape, generator=rng).to(TYPE) if layer.reads_data else torch.randn(shape, dtype=TYPE)
        parameters = {each.name: torch.randn(each.shape, dtype=TYPE, generator=rng) for each in layer.parameters}
        given = ([values], parameters, gradient)
        output, before, *weights = computed(graph, index, dict.fromkeys(layer.output.dims, 1), *given)

        for number in range(slices):
            part = part_layer(graph, index, space, number, dtype=TYPE, device="cpu")
            boxes = part.parameters.items()
            held = {key: parameters[key][box.within(whole_box(parameters[key].shape))] for key, box in boxes}
            read = part.inputs[0].within(whole_box(shape))
            with torch.no_grad():
                output = output - part.forward([values[read]], held, TrainingStep(0, 0))
                part.begin_backward(gradient)
                torch.testing.assert_close(part.activation_gradient()[0], before[read])
                for whole, (key, each) in zip(weights, part.weight_gradient().items(), strict=True):
                    box = part.parameters[key]
                    torch.testing.assert_close(each, whole[box.within(whole_box(whole.shape))])
        torch.testing.assert_close(output, torch.zeros_like(output))


class Scaled(nn.Linear):
    """A product with a matrix that is computed from a parameter."""

    def forward(self, x):
        return functional.linear(x, self.weight * 0.5)


def test_more_than_a_sum_is_not_split_in_slices():
    """A slice of a parameter may be another slice of what is computed from it."""
    graph = imported_graph(trace_of(Scaled(6, 5), input_specs(["3x4x6"])), name="scaled").graph
    layer = graph.layers[0]
    space = space_of(layer, Configuration.on(Mesh((("tensor", 2),), (0, 1)), (SUMMED,), layer.parallel_dims), 2)
    with pytest.raises(ConfigError, match="computes more than a sum"):
        check_imported(graph, 0, space)


def test_attention_apart_computes_the_same_and_keeps_its_weights():
    graph = wide(load_model("gpt2:layers=1,hidden=16,heads=2,sequence=12,words=8", batch=2))
    apart = Software(flash=0).graph_of(graph)
    index = next(i for i, layer in enumerate(graph.layers) if layer.operation.kind == "attention")
    layer, rng = graph.layers[index], np.random.default_rng(1)
    inputs = [torch.from_numpy(rng.normal(size=shape.sizes)) for shape in layer.input_shapes]
    gradient = torch.from_numpy(rng.normal(size=layer.output.sizes))
    for degrees in ({"sample": 1}, {"sample": 2, "channel": 2}, {"length": 3}):
        fused, separate = (computed(each, index, degrees, inputs, {}, gradient) for each in (graph, apart))
        for one, other in zip(fused, separate, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)

    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    space = space_of(apart.layers[index], Configuration({}, (0,)), 1)
    part = part_layer(apart, index, space, 0, dtype=TYPE, device="cpu")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        part.forward([x.clone() for x in inputs], {}, TrainingStep(0, 0))
    scores = 2 * 2 * 12 * 12 * TYPE.itemsize
    assert scores in kept.values(), "the weights of all heads and pairs of positions"


def test_one_sample_lies_in_memory_as_several_do():
    """A library that gets one image with its channels last leaves them last, whichever view of rows it is."""
    view, weight = torch.randn(14, 14, 32, 1).permute(3, 2, 0, 1), torch.randn(16, 32, 3, 3)
    values = of_one_sample(view)
    assert torch.equal(values, view)
    assert not functional.conv2d(view, weight).is_contiguous(memory_format=torch.channels_last)
    assert functional.conv2d(values, weight).is_contiguous(memory_format=torch.channels_last)
