"""Programs from a user's code and from files: what runs, what is refused, and in which words."""

import io
import pickle
import sys
import zipfile

import pytest

torch = pytest.importorskip("torch", reason="the importer needs torch")

from torch import nn  # noqa: E402

from groundwork.errors import ConfigError  # noqa: E402
from planner.importing.graph_of import imported_graph  # noqa: E402
from planner.tracing.exported import trace_of  # noqa: E402
from planner.tracing.inputs import input_specs  # noqa: E402
from planner.tracing.pt2_file import trace_of_pt2  # noqa: E402
from planner.tracing.user_code import built_module  # noqa: E402

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.Linear(width, 2)

    def forward(self, x):
        one, two = torch.relu(self.norm(self.conv(x))).chunk(2, 1)
        return self.fc(torch.cat([two, one], 1).amax((2, 3)))

def reads():
    return Net(width=int(torch.linspace(1, 4, 4)[-1].item()))

def breaks():
    return undefined_name

def text():
    return "no module"
"""


class Net(nn.Module):
    """The network of ``CODE``."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, two = torch.relu(self.norm(self.conv(x))).chunk(2, 1)
        return self.fc(torch.cat([two, one], 1).amax((2, 3)))


def rows(trace):
    """Return what is compared of a graph."""
    graph = imported_graph(trace, name="net").graph
    return [(layer.name, layer.operation, layer.inputs, layer.output) for layer in graph.layers]


@pytest.fixture
def code(tmp_path):
    """A file with several functions."""
    path = tmp_path / "some_models.py"
    path.write_text(CODE)
    yield path
    sys.modules.pop("some_models", None)
    sys.path.remove(str(tmp_path)) if str(tmp_path) in sys.path else None


@pytest.mark.parametrize("name", ["Net", "reads"])
def test_functions_of_a_file_build_modules(code, name):
    """A class and a function build the same; code that reads values while it builds runs on the processor."""
    specs = input_specs(["2x3x6x6"])

    for built in (built_module(name, file=code), built_module(f"{code}:{name}")):
        assert rows(trace_of(built, specs)) == rows(trace_of(Net(), specs))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("breaks", r"raised NameError at .*some_models.py:18: name 'undefined_name'"),
        ("text", "must return a torch.nn.Module, got str"),
        ("missing", "must have 'missing'; it has Net, breaks, reads, text|must have 'missing'"),
        ("not a name", "must be package.module:function"),
    ],
)
def test_code_that_builds_no_module_is_refused(code, name, message):
    """The message is one line with the line of the user's code."""
    with pytest.raises(ConfigError, match=message) as caught:
        built_module(name, file=code)

    assert "\n" not in str(caught.value)


def raises(x):
    raise ValueError("four heads\nor eight")


class Calls(nn.Module):
    """A function of the input, and of a part."""

    def __init__(self, function, part):
        super().__init__()
        self.function, self.part = function, part

    def forward(self, x):
        return self.function(self.part(x))


@pytest.mark.parametrize(
    ("function", "part", "message"),
    [
        (lambda x: x if x.sum() > 0 else -x, nn.Identity(), "its control flow or a size depends on data"),
        (lambda x: torch.zeros(int(x.sum())), nn.Identity(), "its control flow or a size depends on data"),
        (lambda x: x[x > 0], nn.Identity(), "its control flow or a size depends on data"),
        (lambda x: x, nn.Embedding(4, 2), "it reads integers: write :int behind the sizes of the input"),
        (lambda x: x, nn.EmbeddingBag(4, 2), "it reads integers: write :int behind the sizes of the input"),
        (raises, nn.Identity(), "ValueError: four heads or eight"),
    ],
    ids=["branch", "size", "selection", "embedding", "bag of embeddings", "error"],
)
def test_what_cannot_be_exported_is_named_with_its_line(function, part, message):
    with pytest.raises(ConfigError, match=rf"cannot be exported at .*test_tracing\.py:\d+.*: {message}") as caught:
        trace_of(Calls(function, part), input_specs(["2x3"]))
    assert "\n" not in str(caught.value)


def test_a_module_that_cannot_be_found_is_named():
    """The name of the package is part of the message."""
    with pytest.raises(ConfigError, match=r"module 'no\.such' cannot be found"):
        built_module("no.such:build")


@pytest.mark.parametrize("text", ["raise RuntimeError('no')", "def :", "raise SystemExit(3)"])
def test_a_package_that_breaks_is_named(tmp_path, monkeypatch, text):
    """A package around a module runs when the module is looked for; what it raises is one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "breaking_package").mkdir()
    (tmp_path / "breaking_package" / "__init__.py").write_text(text)
    (tmp_path / "breaking_package" / "inner.py").write_text("")
    with pytest.raises(ConfigError, match=r"module breaking_package\.inner raised (Runtime|Syntax|System)E") as caught:
        built_module("breaking_package.inner:build")

    assert "\n" not in str(caught.value)


def test_a_function_that_exits_is_named(tmp_path, monkeypatch):
    """A function that ends the program is refused like one that raises."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "exiting_models.py").write_text("def build():\n    raise SystemExit(3)\n")
    with pytest.raises(ConfigError, match=r"raised SystemExit at .*exiting_models\.py:2"):
        built_module("build", file=tmp_path / "exiting_models.py")

    sys.modules.pop("exiting_models")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Bx3x8x8", "every size as a whole number"),
        ("-1x3x8x8", "every size"),
        ("0x3", "every size"),
        ("", "every size"),
        ("4x3:complex", "type of an input must be int or float"),
        ("999999999999x999999999999", "elements"),
    ],
)
def test_sizes_that_are_not_fixed_are_asked_for(text, message):
    """Dynamic shapes ask for the size."""
    with pytest.raises(ConfigError, match=message):
        input_specs([text])


def exported(path, module=None, **options):
    """Write an exported program."""
    program = torch.export.export((module or Net()).train(), (torch.zeros(2, 3, 6, 6),), **options)
    torch.export.save(program, path)


def test_an_exported_file_is_the_same_program(tmp_path):
    """A program from a file has the layers of the module that was exported."""
    exported(tmp_path / "net.pt2")

    assert rows(trace_of_pt2(tmp_path / "net.pt2")) == rows(trace_of(Net(), input_specs(["2x3x6x6"])))


def test_what_a_module_does_not_train_is_frozen():
    module = Net()
    first = next(iter(dict(module.named_parameters())))
    module.get_parameter(first).requires_grad_(False)
    graph = imported_graph(trace_of(module, input_specs(["2x3x6x6"])), name="net").graph
    frozen = [
        key
        for layer in graph.layers
        for name, key in layer.keys
        if name in {p.name for p in layer.parameters if p.frozen}
    ]
    assert frozen == [first]


class _Bomb:
    """An object that writes a file when it is unpickled."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"nodes"', b'"n\xff"', "can't decode byte 0xff"),
        (b'{"as_int": 6}', b'{"as_int": %d}' % 2**70, r"tensor \w+: sizes must be of at most"),
        (b'{"as_int": 6}', b'{"as_int": -6}', r"tensor \w+: sizes must be whole numbers >= 0"),
        (b'"dtype": 7', b'"dtype": 99', r"tensor \w+: dtype must be a known one, got 99"),
    ],
    ids=["no text", "beyond", "negative", "unknown type"],
)
def test_what_no_program_has_is_refused(tmp_path, old, new, message):
    exported(tmp_path / "net.pt2")
    with zipfile.ZipFile(tmp_path / "net.pt2") as good, zipfile.ZipFile(tmp_path / "bad.pt2", "w") as bad:
        for row in good.infolist():
            content = good.read(row.filename)
            assert old in content or not row.filename.endswith("models/model.json")
            bad.writestr(row.filename, content.replace(old, new))

    with pytest.raises(ConfigError, match=message):
        trace_of_pt2(tmp_path / "bad.pt2")


def test_reading_an_exported_file_unpickles_nothing(tmp_path):
    """Pickles in the archive, of sample inputs or weights, are never loaded."""
    exported(tmp_path / "net.pt2")
    bomb = io.BytesIO()
    pickle.dump(_Bomb(tmp_path / "owned"), bomb)
    with zipfile.ZipFile(tmp_path / "net.pt2") as old, zipfile.ZipFile(tmp_path / "bad.pt2", "w") as new:
        for row in old.infolist():
            new.writestr(row.filename, bomb.getvalue() if "json" not in row.filename else old.read(row.filename))

    trace_of_pt2(tmp_path / "bad.pt2")

    assert not (tmp_path / "owned").exists()


def test_an_exported_file_with_dynamic_shapes_is_refused(tmp_path):
    """The message asks for fixed sizes."""
    exported(tmp_path / "net.pt2", dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))

    with pytest.raises(ConfigError, match="shapes must be fixed"):
        trace_of_pt2(tmp_path / "net.pt2")


@pytest.mark.parametrize("keep", [0, 100, 5000])
def test_files_that_are_cut_off_are_refused(tmp_path, keep):
    """A file that is no archive, or ends early, is refused with its path."""
    exported(tmp_path / "net.pt2")
    (tmp_path / "cut.pt2").write_bytes((tmp_path / "net.pt2").read_bytes()[:keep])

    with pytest.raises(ConfigError, match=r"cut.pt2 is no archive"):
        trace_of_pt2(tmp_path / "cut.pt2")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_damaged_compressed_data_is_one_line(tmp_path, method):
    """Each byte of a compressed graph that is changed ends in a refusal."""
    path = tmp_path / "net.pt2"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("net/models/model.json", "{}" + " " * 400)
    data = path.read_bytes()
    start = 30 + len("net/models/model.json")
    for at in range(start, start + 24):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        with pytest.raises(ConfigError, match="exported program") as caught:
            trace_of_pt2(path)
        assert "\n" not in str(caught.value)
