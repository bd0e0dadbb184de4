"""Memory of recorded computations beside what PyTorch allocates while it runs them, to the byte."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from executor.layers.base import TrainingStep
from executor.layers.factory import part_layer
from executor.measurement.memory_meter import MemoryMeter
from planner.derivatives.recorded_memory import recorded_memory
from planner.importing.graph_of import imported_graph
from planner.layouts.configurations import Configuration, space_of
from planner.layouts.regions import needed_regions, part_sizes
from planner.operations.base import Part
from planner.operations.mapped import Mapped
from planner.operations.rearrangement import VIEWS
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

FLOAT_BYTES = 4
ROUNDING_BYTES = 64
"""Numbers and masks of a few elements."""
OWN_SCRATCH = {"scaled_dot_product_attention": ("forward", "activation gradient"), "parts.1": ("weight gradient",)}
"""Where kernels take blocks of their own for each thread: attention, and the norm's sums."""


def attention(x, *projections):
    """Fused attention of two heads."""
    heads = (make(x).view(*x.shape[:2], 2, 16).transpose(1, 2) for make in projections)
    return functional.scaled_dot_product_attention(*heads).transpose(1, 2)


class Experts(nn.Module):
    """Two products, one after the other, each with a matrix for every half of the positions."""

    def __init__(self):
        super().__init__()
        self.wider, self.narrower = (nn.Parameter(torch.randn(2, *shape)) for shape in ((16, 24), (24, 16)))

    def forward(self, x):
        x = functional.silu(torch.einsum("serc,ech->serh", x.unflatten(1, (2, 4)), self.wider))
        return torch.einsum("serh,ehc->serc", x, self.narrower)


FUNCTIONS = {
    "pow": lambda x: x.pow(3),
    "sqrt": torch.sqrt,
    "sin": torch.sin,
    "abs": torch.abs,
    "relu": functional.relu,
    "sigmoid": torch.sigmoid,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "softplus": functional.softplus,
    "product": lambda x: x * torch.tanh(x),
    "quick gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "gelu written out": lambda x: 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x.pow(3)))),
    "dropout": lambda x: functional.dropout(x, 0.5),
    "softmax": lambda x: torch.softmax(x, -1),
    "log of softmax": lambda x: torch.log_softmax(x, -1),
    "mean": lambda x: x.mean(1),
    "sum": lambda x: x.sum(-1),
    "flip": lambda x: x.flip(1),
    "transposed": lambda x: x.transpose(1, 2),
    "heads": lambda x: x.view(*x.shape[:2], 4, 4).permute(0, 3, 1, 2),
    "slice": lambda x: x[:, 2:6],
    "padded": lambda x: functional.pad(x, (0, 0, 1, 0)),
    "scores": lambda x: torch.einsum("blc,bmc->blm", x, x),
    "linear": (lambda x, make: make(x), nn.Linear(16, 24)),
    "norm": (lambda x, make: make(x), nn.LayerNorm(16)),
    "experts": (lambda x, make: make(x), Experts()),
    "attention": (attention, *(nn.Linear(16, 32) for _ in range(3))),
}


class Each(nn.Module):
    """Functions of a tensor that needs a gradient, each of its own."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.parts = nn.ModuleList(part for row in FUNCTIONS.values() if isinstance(row, tuple) for part in row[1:])

    def forward(self, x):
        x = self.first(x)
        rows = [row if isinstance(row, tuple) else (row,) for row in FUNCTIONS.values()]
        return torch.cat([row[0](x, *row[1:]).reshape(len(x), -1) for row in rows], 1)


def measured():
    """Each recorded layer with pairs of predicted and allocated bytes, by what they are."""
    torch.manual_seed(0)
    graph = imported_graph(trace_of(Each(), input_specs(["4x8x16"])), name="each", loss="none").graph
    outputs, last, rows = {}, {}, []
    for index, layer in enumerate(graph.layers):
        space = space_of(layer, Configuration({}, (0,)), 1)
        part = part_layer(graph, index, space, 0, dtype=torch.float32, device="cpu")
        shapes = layer.input_shapes
        inputs = [outputs.get(name, torch.ones(s.sizes)) for name, s in zip(layer.inputs, shapes, strict=True)]
        weights = {name: torch.randn(box.shape) for name, box in part.parameters.items()}
        maps = [layer.operation.interval_maps(slot, shapes) for slot in range(len(shapes))]
        reads = [needed_regions(space, *each).volume.astype(float) for each in zip(maps, shapes, strict=True)]
        sizes = Part(shapes, layer.output, part_sizes(space))
        recorded = isinstance(layer.operation, Mapped) and bool(layer.operation.computes)
        memory = (
            recorded_memory(layer, sizes, reads, [last.get(name, False) for name in layer.inputs]) if recorded else None
        )
        last[layer.name] = recorded and memory.channels_last
        with torch.no_grad():
            output, forward, kept = counted(part.forward, inputs, weights, TrainingStep(0, 0))
            outputs[layer.name] = output
            if memory is None or layer.reads_data or layer.operation.kind in VIEWS:
                continue
            gradient = torch.randn_like(output)
            part.begin_backward(gradient)
            given, activation, _ = counted(part.activation_gradient)
            made, weight, _ = counted(part.weight_gradient)
            part.release()
        saved = float(memory.saved[0] + memory.copies[0])
        own = 0 if passes(given, gradient) else stored(given)
        rows.append(
            (
                layer.name,
                {
                    "forward": (bytes_of(memory.forward) + float(memory.index_bytes[0]), forward),
                    "kept": (output.nbytes + FLOAT_BYTES * saved + float(memory.index_bytes[0]), kept),
                    "activation gradient": (bytes_of(memory.activation_gradient), activation - own),
                    "weight gradient": (
                        bytes_of(memory.weight_gradient) if weights else 0.0,
                        weight - stored(made.values()),
                    ),
                },
            )
        )
    return rows


def test_recorded_memory_is_what_is_allocated():
    """Forward, between the passes, and for the gradients of inputs and of weights."""
    rows = dict(measured())
    assert len(rows) >= len(FUNCTIONS)
    for name, row in rows.items():
        for what, (predicted, allocated) in row.items():
            if what not in OWN_SCRATCH.get(name, ()):
                assert predicted == pytest.approx(allocated, abs=ROUNDING_BYTES), (name, what)


def bytes_of(elements):
    return FLOAT_BYTES * float(elements[0])


def passes(given, gradient):
    return all(each.untyped_storage().data_ptr() == gradient.untyped_storage().data_ptr() for each in given)


def stored(tensors):
    """Bytes of the memory of tensors, each counted once."""
    storages = [each.untyped_storage() for each in tensors]
    return float(sum({each.data_ptr(): each.nbytes() for each in storages}.values()))


def counted(work, *given):
    """What is computed, the most that is allocated meanwhile, and what is left of that."""
    meter = MemoryMeter()
    meter.start()
    result = work(*given)
    held = meter.stop()
    return result, held.peak_bytes, held.held_bytes[-1] if len(held.held_bytes) else 0.0
