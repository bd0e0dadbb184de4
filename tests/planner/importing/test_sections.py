"""Products whose channels are sections: what is divided, and that nothing else changes."""

import numpy as np
import pytest
import torch
from torch import nn

from groundwork.errors import ConfigError
from planner.graph.computation_graph import LAYER_PHASES
from planner.importing.graph_of import imported_graph
from planner.model_files.model_text import model_text
from planner.models.registry import load_model
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs


class Packed(nn.Module):
    """A product of which pieces are read."""

    def __init__(self, read, width=24) -> None:
        super().__init__()
        self.product, self.read = nn.Linear(8, width), read

    def forward(self, x: torch.Tensor):
        return self.read(self.product(x), self)


def graph_of(read, width=24):
    module = Packed(read, width)
    return imported_graph(trace_of(module, input_specs(["2x6x8"])), name="packed", loss="mean_squared_error").graph


def gated(y, _):
    query, key, value = y.chunk(3, -1)
    return torch.sigmoid(query) * key + value


def by_heads(y, _):
    query, key, value = y.reshape(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
    return nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(2, 6, 8)


@pytest.mark.parametrize("read", [gated, by_heads])
def test_sections_are_the_last_dimension(read):
    """Parts of a third of the channels read what they hold of all three sections."""
    graph = graph_of(read)
    product, *slices = graph.layers[:4]

    assert product.output.dims == ("sample", "channel", "height", "width")
    assert product.output.sizes == (2, 8, 6, 3)
    assert product.parallel_dims == ("sample", "channel", "height")
    assert {each.name: (each.shape, each.axis, each.module_shape) for each in product.parameters} == {
        "weight": ((3, 8, 8), 1, (24, 8)),
        "bias": ((3, 8), 1, (24,)),
    }
    half = np.array([0, 4]), np.array([4, 8])
    for number, layer in enumerate(slices):
        _, channel, _, section = layer.operation.interval_maps(0, layer.input_shapes)
        assert [each.tolist() for each in channel.interval(*half, 8)] == [[0, 4], [4, 8]]
        assert [each.tolist() for each in section.interval(*half, 3)] == [[number] * 2, [number + 1] * 2]


@pytest.mark.parametrize("phase", LAYER_PHASES)
@pytest.mark.parametrize("parts", [1, 2])
def test_work_is_that_of_the_product_without_sections(phase, parts):
    """The same matrices, whole and divided: 24 rows of 8 terms, or 12."""
    apart, one = graph_of(gated).layers[0], graph_of(lambda y, _: torch.sigmoid(y)).layers[0]
    assert one.output.dims == ("sample", "channel", "length")
    kernels = []
    for layer in (apart, one):
        sizes = dict(zip(layer.output.dims, layer.output.sizes, strict=True)) | {}
        sizes["channel"] //= parts
        kernels.append(layer.kernels(phase, {dim: np.array([float(size)]) for dim, size in sizes.items()}))
    for field in ("flop", "memory_bytes", "rows", "columns", "depth", "streamed_bytes"):
        assert getattr(kernels[0], field) == getattr(kernels[1], field)


def test_a_model_file_keeps_sections(tmp_path):
    graph = graph_of(by_heads)
    path = tmp_path / "packed.yaml"
    path.write_text(model_text(graph))

    assert load_model(path, batch=2).layers == graph.layers


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("{of: all, index: 2}", "{of: all, index: 3}", "index of reads must be one of the 3 of width"),
        ("{of: all, index: 2}", "{of: length, index: 2}", "index of reads must be one of the 3 of width, .*, of all"),
        ("axis: 1, sections", "axis: 0, sections", "axis of parameter weight must be behind one of its sections"),
        ("axis: 1, sections", "axis: 2, sections", "of which the last dimension has 3, got 2 of .3, 8, 8."),
    ],
)
def test_sections_that_do_not_fit_are_refused(tmp_path, before, after, message):
    text = model_text(graph_of(by_heads))
    assert before in text
    path = tmp_path / "packed.yaml"
    path.write_text(text.replace(before, after, 1))

    with pytest.raises(ConfigError, match=message):
        load_model(path, batch=2)


@pytest.mark.parametrize(
    ("read", "width"),
    [
        (lambda y, _: y[..., :8] * y[..., 8:16], 20),  # no whole number of sections
        (lambda y, _: y[..., 4:12] * y[..., 12:20], 24),  # sections that begin between others
        (lambda y, _: y[..., :16].mean(-1) + y[..., 16:].mean(-1), 24),  # of two sizes
        (lambda y, _: y[..., :8] * y[..., 8:16] + y.mean(), 24),  # and all of it, too
        (lambda y, _: (gated(y, _), y), 24),  # the module returns it
        (lambda y, m: gated(nn.functional.linear(y[..., :8], m.product.weight), m), 24),  # two products of one weight
    ],
)
def test_other_slices_leave_a_product_as_it_is(read, width):
    product = graph_of(read, width).layers[0]

    assert product.output.dims == ("sample", "channel", "length")
    assert [each.shape for each in product.parameters] == [(width, 8), (width,)]


def test_a_product_of_three_positions_has_no_dimension_left_for_sections():
    module = Packed(gated)
    graph = imported_graph(trace_of(module, input_specs(["2x3x4x5x8"])), name="packed", loss="mean_squared_error").graph
    product = graph.layers[0]

    assert sorted(product.output.sizes) == [2, 3, 4, 5, 24]
    assert [each.shape for each in product.parameters] == [(24, 8), (24,)]
