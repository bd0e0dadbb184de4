"""Imported graphs: work, parameters, fusion and names are those of the module."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the importer needs torch")

from importing.imported_modules import CASES, TiedModel, traced  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from groundwork.errors import ConfigError  # noqa: E402
from planner.importing.graph_of import imported_graph  # noqa: E402
from planner.model_files.model_text import model_text  # noqa: E402
from planner.models.registry import load_model  # noqa: E402
from planner.strategies.micro_batches import WHOLE_BATCH  # noqa: E402
from planner.strategies.recomputation import recompute_of, segments_of  # noqa: E402
from planner.tracing.exported import trace_of  # noqa: E402
from planner.tracing.inputs import input_specs  # noqa: E402


def imported(module: nn.Module, *specs: str, loss: str = "softmax"):
    """Import a module on inputs of these sizes."""
    return imported_graph(trace_of(module, input_specs(specs)), name="it", loss=loss)


class Block(nn.Module):
    """A residual block with a squeeze, as small networks have."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        y = torch.nn.functional.silu(self.deep(x)) * 2.0 + 1.0
        return self.head((y + x).mean((2, 3)))


@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if next(case.make().parameters(), None) is not None]
)
def test_work_is_that_of_the_flop_counter(name):
    """FLOP of the forward products equal PyTorch's own count."""
    case = CASES[name]
    with torch.device("meta"):
        module = case.make()
        with FlopCounterMode(display=False) as counter:
            module(torch.zeros(case.shape))
    found = imported_graph(traced(name), name="it")

    assert found.product_flop == pytest.approx(counter.get_total_flops(), rel=1e-12)


def test_conventions_are_those_of_the_catalogue():
    """Normalisation and activation join the convolution; dropout joins the linear layer; names are module paths."""
    found = imported(Block(), "4x3x8x8")
    layers = {layer.name: layer for layer in found.graph.layers}

    stem = layers["stem.0"].operation
    assert (stem.kind, stem.batch_norm, stem.activation, stem.bias) == ("convolution", True, "relu", False)
    head = layers["head.0"].operation
    assert (head.kind, head.activation, head.dropout) == ("linear", "relu", 0.5)
    assert found.graph.layers[-1].operation.kind == "softmax"
    assert dict(layers["stem.0"].keys) == {
        "weight": "stem.0.weight",
        "norm_weight": "stem.1.weight",
        "norm_bias": "stem.1.bias",
    }


def test_chains_of_elementwise_operations_become_one_layer():
    """What follows the convolution element by element, and the sum behind it, is one kernel that is reported."""
    found = imported(Block(), "4x3x8x8")
    (chain,) = [layer for layer in found.graph.layers if layer.operation.kind == "elementwise"]

    assert chain.operation.steps == ("silu", "mul", "add", "add")
    assert chain.inputs == ("deep", "stem.0")
    assert ("silu", "mul", "add", "add") in {row.steps for row in found.fused}


def test_tied_weights_are_one_parameter():
    """A table that is also the last matrix is counted, updated and synchronised once, by its first layer."""
    found = imported(TiedModel(), "4x6:int")
    table, head = (found.graph.layers[found.graph.index[name]] for name in ("table", "head"))

    assert found.graph.parameter_count == 32 * 16
    assert head.parameters[0].shared == "table"
    assert (table.parameter_count, head.parameter_count) == (512, 0)
    assert found.graph.has_phase(found.graph.index["head"], "weight_gradient")


def test_a_parameter_that_a_chain_uses_twice_is_one():
    """A chain has one tensor of a key: with two of them a run would train each by a part of the gradient."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.shift = nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(6, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return ((x * self.scale + self.shift).tanh() * self.scale + self.shift) * self.scale

    graph = imported(Scaled(), "4x6x8").graph
    chain = graph.layers[0]

    assert graph.parameter_count == 8 + 6 * 8
    assert [key for _, key in chain.keys] == ["scale", "shift"]
    used = [o.constant.parameter for step in chain.operation.computes for o in step.operands if o.constant]
    assert [dict(chain.keys)[name] for name in used] == ["scale", "shift", "scale", "shift", "scale"]


def test_a_parameter_along_two_axes_joins_no_chain():
    """A split of channels splits the first use, and not the second: they stay two layers that share it."""

    class Crossed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale + self.scale[:, None]

    graph = imported(Crossed(), "4x8x8").graph

    assert graph.parameter_count == 8
    assert [p.shared for layer in graph.layers for p in layer.parameters] == ["", graph.layers[0].name]


@pytest.mark.parametrize(
    ("window", "kind"),
    [
        ({"padding": 2}, "convolution"),
        ({"padding": (0, 2)}, "convolution"),
        ({"padding": 4, "dilation": 2}, "convolution"),
        ({"padding": 3}, "convolution_of_any_kind"),  # whole windows lie in the padding
        ({"padding": (0, 3)}, "convolution_of_any_kind"),
        ({"padding": 5, "dilation": 2}, "convolution_of_any_kind"),
    ],
)
def test_windows_that_meet_the_input_make_a_convolution(window, kind):
    """One that pads more than a window less one element is of another kind; sizes and work are PyTorch's."""
    module = nn.Conv2d(4, 6, 3, **window)
    with FlopCounterMode(display=False) as counter:
        made = module(torch.zeros(2, 4, 9, 9))
    found = imported(module, "2x4x9x9")
    layer = found.graph.layers[0]

    assert (layer.operation.kind, layer.output.sizes) == (kind, tuple(made.shape))
    assert found.product_flop == pytest.approx(counter.get_total_flops(), rel=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_means_of_all_positions_are_pooling(rank):
    """Whatever module or function makes them."""
    kinds = [nn.Conv1d, nn.Conv2d, nn.Conv3d], [nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d]
    convolution, pool = (row[rank - 1] for row in kinds)

    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = convolution(3, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(x).mean([*range(2, rank + 2)])

    by_module = nn.Sequential(convolution(3, 4, 3), pool(1), nn.Flatten())
    found = [imported(each, "x".join(["2x3", *["5"] * rank])).graph.layers[1] for each in (Mean(), by_module)]
    assert found[0].operation == found[1].operation
    assert found[0].operation.kind == "global_pooling"


def test_convolutions_share_weights_beside_biases_of_their_own():
    """One tensor of two layers is enough for them to be such that know of it."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
            self.two.weight = self.one.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(x).tanh())

    graph = imported(Twice(), "2x4x5x5").graph
    assert graph.parameter_count == sum(p.numel() for p in Twice().parameters())


@pytest.mark.parametrize(
    ("shape", "factors", "is_run"),
    [
        ((6,), {}, True),
        ((6,), {"alpha": 2.0}, False),
        ((6,), {"beta": 0.5}, False),
        ((4, 6), {}, False),  # of a row for each sample
    ],
)
def test_only_a_plain_bias_is_added_by_a_product(shape, factors, is_run):
    """Any other sum with a product is planned alone: the step that it would be run by has no factors and no rows."""

    class Added(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.added, self.weight = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.ones(8, 6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.addmm(self.added, x, self.weight, **factors)

    layer = imported(Added(), "4x8").graph.layers[0]
    assert dict(layer.keys) == {"weight": "weight", "bias": "added"}
    assert bool(layer.operation.computes) is is_run
    assert layer.output.sizes == (4, 6)


def test_no_module_is_taken_for_data():
    """A layer of a module that is called as data are gets another name, and reads its own input."""

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module("input:2", nn.Linear(5, 5))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.get_submodule("input:2")(y) - x

    found = imported(Named(), "y=4x5", "x=4x5")
    layers = found.graph.layers

    assert found.inputs == (("input", "y"), ("input:2", "x"))
    assert layers[0].keys == (("weight", "input:2.weight"), ("bias", "input:2.bias"))
    assert [layer.inputs for layer in layers[:2]] == [("input",), (layers[0].name, "input:2")]


def test_unknown_operations_are_split_by_samples_and_listed():
    """An operation without a rule keeps its samples apart, and the report says so."""

    class Sorted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.qr(x)[0] * 2

    found = imported(Sorted(), "4x3x5x5")
    (name, operation, reason) = found.by_sample[0]

    assert (operation, reason) == ("linalg_qr", "no rule is known for it")
    assert found.graph.layers[found.graph.index[name]].parallel_dims == ("sample",)


@pytest.mark.parametrize(
    ("function", "unknown"),
    [
        (lambda x, p, i: x.transpose(1, 2).gather(2, p), ["gather"]),
        (lambda x, p, i: x.gather(1, i[:, :, :2]), ["gather"]),
        (lambda x, p, i: x.gather(1, p.transpose(1, 2).flatten(1)[..., None].expand_as(i)), ["gather"]),
        (lambda x, p, i: x.gather(1, p.view(-1, 6, 2).flatten(1)[..., None].expand(-1, -1, 4)), ["gather"]),
        (lambda x, p, i: torch.ones_like(x).scatter_add(1, i, x.gather(1, i)), ["scatter_add"]),
        (lambda x, p, i: (x + 1).scatter_add(1, i, x.gather(1, i)), ["scatter_add"]),
        (lambda x, p, i: torch.zeros(x.shape[0], 9, 4).scatter_add(1, i, x.gather(1, i)), ["scatter_add"]),
        (lambda x, p, i: torch.zeros(x.shape[0], 6, 7).scatter_add(1, i, x.gather(1, i)), ["scatter_add"]),
    ],
)
def test_places_of_rows_that_are_not_followed_are_split_by_samples(function, unknown):
    """Their results have the sizes of the module's."""

    class Routed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            places = x.transpose(1, 2).topk(3, -1).indices
            return function(x, places, places.flatten(1)[..., None].expand(-1, -1, 4))

    found, sizes = imported(Routed(), "5x6x4"), Routed()(torch.rand(5, 6, 4)).shape
    assert [operation for _, operation, _ in found.by_sample] == unknown
    assert sorted(found.graph.layers[-1].output.sizes) == sorted(sizes)


def test_writing_into_a_slice_is_followed():
    """What is written into a view is read by those who read what it is a view of."""

    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.zeros_like(x)
            y[:, 1] = x[:, 0].exp()
            return y * 2

    graph = imported(Writes(), "4x3x5x5", loss="none").graph

    assert [layer.operation.kind for layer in graph.layers] == ["slice", "elementwise", "elementwise"]
    assert graph.layers[-1].operation.steps == ("copy", "mul")


def test_other_batches_scale():
    """A graph that was imported with one batch serves another."""
    graph = imported(CASES["attention in windows"].make(), "2x16x8x8").graph.with_batch(6)

    assert {layer.output.sizes[0] for layer in graph.layers} == {6}


@pytest.mark.parametrize("name", ["convolution", "attention in windows", "attention, grouped", "patches", "einsum"])
def test_one_sample_is_imported_as_several_are(name):
    """An axis of one sample is told from others of size 1: with four samples the graph is that of an import of four."""
    case = CASES[name]
    one, four = (imported(case.make(), "x".join(map(str, (n, *case.shape[1:])))).graph for n in (1, 4))

    assert one.batch == 1
    assert model_text(one.with_batch(4)) == model_text(four)


def test_what_holds_one_sample_fast_is_refused():
    """A module that takes one sample alone cannot be traced with two: one line says so, and what to do."""

    class One(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(3, 5) * 2

    with pytest.raises(
        ConfigError, match=r"batch of the inputs must be 2 or more, .*export it with 2 or more"
    ) as caught:
        imported(One(), "1x3x5")
    assert "\n" not in str(caught.value)


class MixesSamples(nn.Module):
    """A module whose result has no axis of samples."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1) @ torch.tanh(x).flatten(1).T


class DependsOnData(nn.Module):
    """A module whose control flow depends on data."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


class Raises(nn.Module):
    """A module with an error."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.zeros(3, 3, device=x.device)


class Constant(nn.Module):
    """A module whose result does not depend on its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(4)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (MixesSamples, r"operation matmul at .*imported_graphs.py:\d+.* mixes samples"),
        (DependsOnData, r"imported_graphs.py:\d+ .*control flow or a size depends on data"),
        (Raises, r"imported_graphs.py:\d+ "),
        (Constant, "must return a tensor that depends on its input"),
    ],
)
def test_what_cannot_be_imported_is_said_in_one_line(module, message):
    """The message names the operation or the line of the user's code."""
    with pytest.raises(ConfigError, match=message) as caught:
        imported(module(), "4x3x8x8")

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["resnet18"])
def test_a_catalogue_model_comes_out_the_same(name):
    """A network written as the catalogue's comes out with the same operations and work."""
    graph = load_model(name, batch=4)

    class Residual(nn.Module):
        def __init__(self, into: int, out: int, stride: int) -> None:
            super().__init__()
            self.a = nn.Sequential(nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU())
            self.b = nn.Sequential(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
            same = stride == 1 and into == out
            self.down = (
                nn.Identity()
                if same
                else nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.b(self.a(x)) + self.down(x))

    stages = [
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    ]
    with torch.device("meta"):
        module = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
            *(Residual(*stage) for stage in stages),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(512, 1000),
        )
    ours = imported(module, "4x3x224x224").graph

    def rows(g):
        return sorted((repr(v.operation), v.output.sizes, v.forward_flop()) for v in g.layers)

    assert rows(ours) == rows(graph)


@pytest.mark.parametrize(
    ("module", "operation", "arguments"),
    [
        (nn.Flatten(), "flatten", {}),
        (nn.Softmax(1), "softmax", {"dim": "x"}),
    ],
)
def test_a_node_that_contradicts_the_graph_is_named(module, operation, arguments):
    """A node without results, or with an argument of another kind, is one line with the node and the operation."""
    trace = trace_of(module, input_specs(["2x8"]))
    node = next(each for each in trace.nodes if each.operation == operation)
    wrong = replace(node, arguments={**node.arguments, **arguments}, results=())
    with pytest.raises(ConfigError, match=f"operation {operation}.*node {node.name!r} contradicts") as caught:
        imported_graph(replace(trace, nodes=(wrong,)), name="it")

    assert "\n" not in str(caught.value)


class LateValues(nn.Module):
    """Attention written out, whose values are computed behind the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        weights = torch.softmax(self.query(x) @ self.key(x).transpose(1, 2), -1)
        return weights @ self.value(x)


def test_selective_recomputation_leaves_out_what_is_no_score():
    graph = imported(LateValues(), "4x6x8", loss="none").graph
    segments = segments_of(graph, recompute_of(graph, "selective", WHOLE_BATCH), WHOLE_BATCH)
    again = [layer.operation.kind for layer, segment in zip(graph.layers, segments, strict=True) if segment >= 0]
    assert again == ["batched_product", "reduction", "batched_product"]
