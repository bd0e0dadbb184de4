"""ONNX files give the graph that the same module gives when PyTorch exports it."""

import io
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="modules are exported with torch")
onnx = pytest.importorskip("onnx", reason="the reader needs onnx")

from importing.imported_modules import CASES, traced  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from torch import nn  # noqa: E402

from groundwork.errors import ConfigError  # noqa: E402
from planner.importing.graph_of import imported_graph  # noqa: E402
from planner.model_files.model_text import model_text  # noqa: E402
from planner.onnx_files.trace_of_onnx import trace_of_onnx  # noqa: E402
from planner.tracing.exported import trace_of  # noqa: E402
from planner.tracing.inputs import input_specs  # noqa: E402


class Network(nn.Module):
    """Convolutions with batch normalisation, depthwise ones, a residual sum, pooling of three kinds, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.deep = nn.Conv2d(8, 8, (3, 5), padding=(1, 2), groups=8)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.head = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = torch.relu(x + self.deep(x))
        x = torch.cat([nn.functional.max_pool2d(x, 2), nn.functional.avg_pool2d(x, 2)], 1)[:, 4:12]
        x = nn.functional.interpolate(self.up(nn.functional.pad(x, (0, 1, 0, 0))), scale_factor=2.0)
        return self.head(x.mean((2, 3)))


class Words(nn.Module):
    """An embedding, two layers of a transformer and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(50, 16), nn.LayerNorm(16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 50)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.norm(self.table(ids))))


def exported(module: nn.Module, shape: tuple[int, ...], path: Path, kind=torch.float32, **options) -> Path:
    """Write a module to an ONNX file by PyTorch's exporter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.train(),
            (torch.zeros(shape, dtype=kind),),
            str(path),
            dynamo=False,
            do_constant_folding=False,
            training=torch.onnx.TrainingMode.TRAINING,
            opset_version=17,
            **options,
        )
    return path


def same_work(found, expected) -> None:
    assert found.graph.parameter_count == expected.graph.parameter_count
    assert found.product_flop == pytest.approx(expected.product_flop, rel=1e-12)


@pytest.mark.parametrize(
    ("make", "shape", "kind"), [(Network, (2, 3, 16, 16), torch.float32), (Words, (2, 6), torch.int64)]
)
def test_a_file_is_the_module_that_it_was_exported_from(tmp_path, make, shape, kind):
    """Parameters, work, and the names and shapes of the layers with parameters are those of the module."""
    found = imported_graph(trace_of_onnx(exported(make(), shape, tmp_path / "net.onnx", kind)), name="it")
    sizes = "x".join(map(str, shape)) + (":int" if kind == torch.int64 else "")
    expected = imported_graph(trace_of(make(), input_specs([sizes])), name="it")

    same_work(found, expected)
    assert [(w.name, w.operation.kind, w.output) for w in found.graph.layers if w.parameters] == [
        (w.name, w.operation.kind, w.output) for w in expected.graph.layers if w.parameters
    ]
    keys = {key for layer in found.graph.layers for _, key in layer.keys}
    assert {key for key in keys if not key.startswith("onnx::")} <= set(make().state_dict())
    assert not found.by_sample


# the first two are not in ONNX; of the others the exporter makes constants of one element
ABSENT = ("adaptive pooling", "attention, shared keys", "prelu of one slope", "learned number")


@pytest.mark.parametrize("name", [name for name in CASES if name not in ABSENT])
def test_modules_of_the_importers_tests(tmp_path, name):
    """Files of single operations do the same work as the modules, or are refused in one line."""
    case = CASES[name]
    path = exported(case.make(), case.shape, tmp_path / "net.onnx")
    found = imported_graph(trace_of_onnx(path), name="it", loss="none")
    expected = imported_graph(traced(name), name="it", loss="none")

    same_work(found, expected)
    assert found.graph.layers[-1].output.elements == expected.graph.layers[-1].output.elements


def test_sizes_may_be_given(tmp_path):
    """A file without fixed sizes asks for them, and takes them by position or name."""
    path = exported(
        Network(), (2, 3, 16, 16), tmp_path / "net.onnx", input_names=["image"], dynamic_axes={"image": {0: "batch"}}
    )

    with pytest.raises(ConfigError, match=r"input 'image' has batchx3x16x16; import it with --input image=SIZES"):
        trace_of_onnx(path)
    for text in ("8x3x16x16", "image=8x3x16x16"):
        assert imported_graph(trace_of_onnx(path, input_specs([text])), name="it").graph.batch == 8
    with pytest.raises(ConfigError, match=r"input must be one of image, which .* reads, got 'sound'"):
        trace_of_onnx(path, input_specs(["sound=8x3x16x16"]))


def graph_file(path: Path, nodes, weights=(), shape=(2, 8), out=(2, 8), opset=21) -> Path:
    """Write a file of some nodes that read ``x`` and make ``y``."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in weights])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]).SerializeToString())
    return path


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, dtype=np.float32)


def test_a_product_and_its_bias_become_one_layer(tmp_path):
    """A matrix is that of a linear layer, outputs first, with the bias that a later node adds."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])]
    path = graph_file(tmp_path / "n.onnx", nodes, [("w", floats(8, 5)), ("b", floats(5))], out=(2, 5))
    (layer,) = imported_graph(trace_of_onnx(path), name="it", loss="none").graph.layers

    assert layer.operation.kind == "linear"
    assert [p.shape for p in layer.parameters] == [(5, 8), (5,)]
    assert layer.keys == (("weight", "w"), ("bias", "b"))


def test_sizes_that_nodes_compute_are_followed(tmp_path):
    """A reshape by sizes that are read off a tensor needs no other file."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["batch"], axis=0),
        helper.make_node("Concat", ["batch", "rest"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["x", "sizes"], ["y"]),
    ]
    weights = [("zero", np.array([0])), ("rest", np.array([4, 2]))]
    path = graph_file(tmp_path / "n.onnx", [*nodes, helper.make_node("Relu", ["y"], ["z"])], weights, out=(2, 4, 2))
    trace = trace_of_onnx(path)

    assert [node.operation for node in trace.nodes] == ["reshape", "relu"]
    assert trace.nodes[0].results[0].shape == (2, 4, 2)


def test_a_local_response_norm_is_that_of_the_catalogue(tmp_path):
    node = helper.make_node("LRN", ["x"], ["y"], size=5, alpha=2e-4, beta=0.5, bias=3.0)
    graph = imported_graph(
        trace_of_onnx(graph_file(tmp_path / "m.onnx", [node], shape=(2, 8, 4, 4), out=(2, 8, 4, 4))), name="m"
    ).graph
    (norm,) = [layer.operation for layer in graph.layers if layer.operation.kind == "local_response_norm"]
    assert (norm.size, norm.alpha, norm.beta, norm.k) == pytest.approx((5, 2e-4, 0.5, 3.0))


def test_padding_on_one_side_is_a_layer_of_its_own(tmp_path):
    """``SAME_UPPER`` of an even kernel pads one more behind than before."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER")
    path = graph_file(tmp_path / "n.onnx", [node], [("w", floats(4, 3, 2, 2))], shape=(2, 3, 8, 8), out=(2, 4, 8, 8))
    layers = imported_graph(trace_of_onnx(path), name="it", loss="none").graph.layers

    assert [(layer.operation.kind, layer.output.sizes) for layer in layers] == [
        ("pad", (2, 3, 9, 9)),
        ("convolution", (2, 4, 8, 8)),
    ]


@pytest.mark.parametrize(("kind", "make"), [("LSTM", nn.LSTM), ("GRU", nn.GRU), ("RNN", nn.RNN)])
def test_recurrent_layers_do_the_work_of_the_module(tmp_path, kind, make):
    """Matrices of each gate are read from the three axes in which ONNX keeps them."""
    gates, hidden, features = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 8, 6
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node(kind, ["t", "w", "r", "b"], ["h"], hidden_size=hidden),
        helper.make_node("Squeeze", ["h", "one"], ["s"]),
        helper.make_node("Transpose", ["s"], ["y"], perm=[1, 0, 2]),
    ]
    sizes = {"w": (1, gates * hidden, features), "r": (1, gates * hidden, hidden), "b": (1, 2 * gates * hidden)}
    weights = [*((name, floats(*shape)) for name, shape in sizes.items()), ("one", np.array([1]))]
    path = graph_file(tmp_path / "n.onnx", nodes, weights, shape=(2, 5, features), out=(2, 5, hidden))
    module = make(features, hidden, batch_first=True)
    expected = imported_graph(trace_of(Last(module), input_specs(["2x5x6"])), name="it")

    same_work(imported_graph(trace_of_onnx(path), name="it"), expected)
    nodes[0] = helper.make_node("Transpose", ["x"], ["t"], perm=[0, 1, 2])
    trace = trace_of_onnx(graph_file(path, nodes, weights, shape=(2, 5, features), out=(5, 2, hidden)))
    with pytest.raises(ConfigError, match="reads its steps from the first axis, in which the samples are"):
        imported_graph(trace, name="it")


class Last(nn.Module):
    """The states of a recurrent layer without its last ones."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def test_factors_and_statistics_are_no_parameters(tmp_path):
    """Scales of a resampling are constants; a constant of normalisation is what the file says."""
    nodes = [
        helper.make_node("BatchNormalization", ["x", "g", "b", "m", "v"], ["n"], epsilon=1e-3),
        helper.make_node("Resize", ["n", "", "scales"], ["y"], mode="nearest"),
    ]
    weights = [(name, floats(3)) for name in "gbmv"] + [("scales", np.array([1, 1, 2, 2], dtype=np.float32))]
    path = graph_file(tmp_path / "n.onnx", nodes, weights, shape=(2, 3, 4, 4), out=(2, 3, 8, 8))
    graph = imported_graph(trace_of_onnx(path), name="it", loss="none").graph

    assert graph.parameter_count == 6
    assert graph.layers[0].operation.eps == 1e-3
    assert graph.layers[-1].output.sizes == (2, 3, 8, 8)


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Elu", ["x"], ["y"], alpha=3.0),
        helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.3),
        helper.make_node("HardSigmoid", ["x"], ["y"]),
    ],
)
def test_what_onnx_layers_compute_is_not_written_down(tmp_path, node):
    """Their arguments are not those of PyTorch, so they are planned and never run by another formula."""
    conv = helper.make_node("Conv", ["x", "w"], ["h"])
    node.input[0] = "h"
    path = graph_file(
        tmp_path / "n.onnx", [conv, node], [("w", floats(4, 3, 1, 1))], shape=(2, 3, 4, 4), out=(2, 4, 4, 4)
    )
    layers = imported_graph(trace_of_onnx(path), name="it", loss="none").graph.layers

    assert [layer.operation.kind for layer in layers] == ["convolution", "elementwise"]
    assert not layers[1].operation.computes


@pytest.mark.parametrize(
    ("kind", "call", "last"),
    [("Sum", "add", []), ("Max", "maximum", []), ("Min", "minimum", []), ("Mean", "add", ["div"])],
)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_any_number_of_tensors_is_joined_in_pairs(tmp_path, kind, call, last, count):
    """Of n tensors n - 1 pairs, and one division for a mean; one alone is what comes out."""
    names = [f"x{i}" for i in range(count)]
    nodes = [*(helper.make_node("Sin", ["x"], [name]) for name in names), helper.make_node(kind, names, ["y"])]
    trace = trace_of_onnx(graph_file(tmp_path / "n.onnx", nodes))

    joins = [node.operation for node in trace.nodes if node.operation != "sin"]
    assert joins == ([call] * (count - 1) + last if count > 1 else ["alias"])


def test_factors_of_a_general_product_are_operations(tmp_path):
    """A factor of the bias is no part of the linear layer."""
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1, beta=3.0)]
    path = graph_file(tmp_path / "n.onnx", nodes, [("w", floats(5, 8)), ("b", floats(5))], out=(2, 5))
    graph = imported_graph(trace_of_onnx(path), name="it", loss="none").graph

    assert [layer.operation.kind for layer in graph.layers] == ["matrix_product", "elementwise"]
    assert graph.parameter_count == 45


def test_group_norm_of_every_version_is_read(tmp_path):
    """ONNX does not infer the sizes of its result."""
    for opset in (18, 21):
        count = 2 if opset < 21 else 4
        node = helper.make_node("GroupNormalization", ["x", "g", "b"], ["y"], num_groups=2)
        weights = [("g", floats(count)), ("b", floats(count))]
        path = graph_file(tmp_path / "n.onnx", [node], weights, shape=(2, 4, 4, 4), out=(2, 4, 4, 4), opset=opset)
        (layer,) = imported_graph(trace_of_onnx(path), name="it", loss="none").graph.layers
        assert layer.operation.kind == "feature_norm"


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (helper.make_node("Relu", ["absent"], ["y"], name="r"), r"Relu of node 'r': it reads 'absent', which nothing"),
        (helper.make_node("Mystery", ["x"], ["z"], domain="my.own"), r"Mystery of node 'z': the sizes of its result"),
        (helper.make_node("If", ["x"], ["y"], name="i"), r"If of node 'i': control flow has no fixed program"),
        (
            helper.make_node("MatMul", ["x"], ["z"], name="m"),
            r"MatMul of node 'm': the sizes of its result",
        ),
        (
            helper.make_node("SplitToSequence", ["x", "zero"], ["y"], name="s"),
            r"SplitToSequence of node 's': split must be >= 1, got 0",
        ),
        (
            helper.make_node("Reshape", ["x", "three"], ["z"], name="v"),
            r"Reshape of node 'v': tensor 'three' of the file fixes its result to \[3\], which .* elements of .* do "
            r"not fill; give with --input the sizes",
        ),
        (helper.make_node("Reshape", ["x", "x"], ["z"]), r"Reshape of node 'z': the sizes of its result 'z' cannot"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, node, message):
    """One line names the operation, the node and the rule."""
    with pytest.raises(ConfigError, match=message) as error:
        trace_of_onnx(graph_file(tmp_path / "n.onnx", [node], [("zero", np.array(0)), ("three", np.array([3]))]))

    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"no protocol buffer", b"\x08"])
def test_other_files_are_refused(tmp_path, content):
    """What is no ONNX file is refused in one line."""
    (tmp_path / "n.onnx").write_bytes(content)
    with pytest.raises(ConfigError, match=r"ONNX file .*n.onnx (is no|must hold)"):
        trace_of_onnx(tmp_path / "n.onnx")


def test_versions_that_are_not_known_are_refused(tmp_path):
    """A newer version of the operations than the installed package's is named."""
    with pytest.raises(ConfigError, match=r"must use operations of a version from 1 to \d+, .* got 999"):
        trace_of_onnx(graph_file(tmp_path / "n.onnx", [helper.make_node("Relu", ["x"], ["y"])], opset=999))


def test_cut_off_and_spoiled_files_end_in_one_line(tmp_path):
    """Whatever of a file is lost or changed, reading ends with a program or a refusal."""
    content = exported(Network(), (2, 3, 16, 16), tmp_path / "net.onnx").read_bytes()
    rng = np.random.default_rng(1)
    lines = []
    for _ in range(60):
        spoiled = io.BytesIO(content)
        for place in rng.integers(0, len(content), 8):
            spoiled.seek(int(place))
            spoiled.write(bytes([rng.integers(0, 256)]))
        (tmp_path / "bad.onnx").write_bytes(spoiled.getvalue()[: rng.integers(1, len(content) + 1)])
        try:
            lines.append(imported_graph(trace_of_onnx(tmp_path / "bad.onnx"), name="it").graph.name)
        except ConfigError as error:
            lines.append(str(error))
    assert not any("\n" in line for line in lines)
    assert len(lines) == 60


SPOILED = {
    "unknown type": (lambda g: setattr(g.initializer[0], "data_type", 99), r"'w': elem_type must be a type .* got 99"),
    "unknown type of data": (
        lambda g: setattr(g.input[0].type.tensor_type, "elem_type", 99),
        r"'x': elem_type must be",
    ),
    "no samples": (lambda g: setattr(size_of(g, 0), "dim_value", 0), r"input 'x' must have sizes >= 1, got \[0, 8\]"),
    "nothing": (lambda g: setattr(size_of(g, 1), "dim_value", 0), r"input 'x' must have sizes >= 1, got \[2, 0\]"),
    "beyond": (lambda g: setattr(size_of(g, 1), "dim_value", 2**62), r"'x': sizes must be of at most 9,007,\d+"),
}


def size_of(graph, axis):
    """The size of an axis of the input."""
    return graph.input[0].type.tensor_type.shape.dim[axis]


@pytest.mark.parametrize("case", SPOILED)
def test_types_and_sizes_that_no_tensor_has_are_refused(tmp_path, case):
    """One line names the tensor, the rule and the value."""
    spoil, message = SPOILED[case]
    path = graph_file(tmp_path / "n.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [("w", floats(8, 8))])
    model = onnx.load(path)
    spoil(model.graph)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ConfigError, match=message) as error:
        imported_graph(trace_of_onnx(path), name="it")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "sizes"),
    [(CASES["attention, written out"].make, (8, 16)), (Network, (3, 16, 16))],
    ids=["words", "images"],
)
def test_a_file_of_one_sample_is_that_of_several(tmp_path, make, sizes):
    """A file whose batch is fixed to one gives the graph of one with four, which was not read with two."""
    one, four = (
        imported_graph(trace_of_onnx(exported(make(), (n, *sizes), tmp_path / f"{n}.onnx")), name="it").graph
        for n in (1, 4)
    )

    assert one.batch == 1
    assert model_text(one.with_batch(4)) == model_text(four)


def test_a_file_that_holds_its_one_sample_fast_is_refused(tmp_path):
    """Attention of torch.nn makes one axis of samples and heads, whose size the file fixes: one line says so."""
    path = exported(Words(), (1, 7), tmp_path / "n.onnx", torch.int64)
    with pytest.raises(ConfigError, match=r"must be 2 or more, .*Reshape_3': .*; export it with 2 or more") as error:
        imported_graph(trace_of_onnx(path), name="it")
    assert "\n" not in str(error.value)


def test_the_work_of_an_import_grows_with_its_nodes(tmp_path):
    """Calls that Python makes, which no load of the machine changes: four times the nodes cost four times as many."""

    def calls(layers):
        nodes, weights = [], []
        for i in range(layers):
            nodes += [
                helper.make_node("MatMul", [f"h{i}" if i else "x", f"w{i}"], [f"m{i}"], name=f"m{i}"),
                helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"], name=f"a{i}"),
                helper.make_node("Unsqueeze", [f"a{i}", "axis"], [f"u{i}"], name=f"u{i}"),
                helper.make_node("BatchNormalization", [f"u{i}", *[f"b{i}"] * 4], [f"n{i}"], name=f"n{i}"),
                helper.make_node("Squeeze", [f"n{i}", "axis"], [f"h{i + 1}"], name=f"s{i}"),
            ]
            weights += [(f"w{i}", floats(8, 8)), (f"b{i}", floats(8))]
        nodes[-1].output[0] = "y"
        path = graph_file(tmp_path / "n.onnx", nodes, [*weights, ("axis", np.array([2]))])
        count = [0]

        def counted(frame, event, argument):
            count[0] += 1

        sys.setprofile(counted)
        try:
            imported_graph(trace_of_onnx(path), name="it")
        finally:
            sys.setprofile(None)
        return count[0]

    calls(2)
    assert calls(160) < 4.5 * calls(40)
