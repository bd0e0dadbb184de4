"""Model files: what is written is read the same, and what is edited wrongly is refused in one line."""

import pytest

from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph
from planner.model_files.model_text import model_text
from planner.models.registry import load_model, model_names


def written(tmp_path, text: str) -> str:
    """Write a model file and return its path."""
    path = tmp_path / "model.yaml"
    path.write_text(text)
    return str(path)


def same(one: ComputationGraph, two: ComputationGraph) -> bool:
    """Return whether two graphs have the same layers."""
    return [(v.name, v.operation, v.inputs, v.output, v.parallel_dims) for v in one.layers] == [
        (v.name, v.operation, v.inputs, v.output, v.parallel_dims) for v in two.layers
    ]


@pytest.mark.parametrize("name", model_names())
def test_catalogue_models_come_back(tmp_path, name):
    """Every model of the catalogue, written and read with another batch, is that model; two layers stand for many."""
    name = {"mixtral": "mixtral:layers=2", "llama-1b": "llama-1b:layers=2"}.get(name, name)
    path = written(tmp_path, model_text(load_model(name, batch=4), heading=["A model"]))

    graph = load_model(path, batch=6)

    assert same(graph, load_model(name, batch=6))
    assert graph.name == path


def test_imported_modules_come_back(tmp_path):
    """Every kind of layer that the importer makes, written and read, is that layer."""
    pytest.importorskip("torch", reason="the importer needs torch")
    from importing.imported_modules import CASES, traced

    from planner.importing.graph_of import imported_graph

    for name in CASES:
        graph = imported_graph(traced(name), name=name).graph
        back = load_model(written(tmp_path, model_text(graph)), batch=graph.batch)
        assert same(graph, back), name
        assert [layer.keys for layer in graph.layers] == [layer.keys for layer in back.layers]


DIGITS = model_text(load_model("digits", batch=2))


def test_dimensions_that_may_be_split_can_be_edited(tmp_path):
    """A file that leaves dimensions out of ``parallel`` keeps configurations from splitting them."""
    path = written(tmp_path, DIGITS.replace("parallel: [sample, channel, height, width]", "parallel: [sample]", 1))

    graph = load_model(path, batch=2)

    assert graph.layers[0].parallel_dims == ("sample",)
    assert graph.layers[1].parallel_dims == ("sample", "channel", "height", "width")
    assert graph.digest != load_model(written(tmp_path, DIGITS), batch=2).digest


TWO = """format: orrery model 2
batch: 4
data:
  unread: {channel: 8}
  left: {channel: 8}
  right: {channel: 8}
layers:
- {name: input_2, kind: linear, inputs: [right], channels: 8}
- {name: total, kind: add, inputs: [right, input_2, left]}
"""


def test_inputs_of_one_shape_are_told_apart(tmp_path):
    """They are numbered in the file's order without those that nothing reads, whatever a layer is called."""
    graph = load_model(written(tmp_path, TWO), batch=2)
    back = load_model(written(tmp_path, model_text(graph)), batch=2)
    swapped = load_model(written(tmp_path, TWO.replace("[right]", "[left]")), batch=2)

    assert [layer.inputs for layer in graph.layers] == [("input:2",), ("input:2", "input_2", "input")]
    assert [*graph.data] == ["input", "input:2"]
    assert same(graph, back)
    assert graph.digest == back.digest != swapped.digest


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("format: orrery model 2", "format: 3", "format must be 'orrery model 2', got 3"),
        ("orrery model 2", "orrery model 1", "has version 1, which Orrery 0.1 wrote: make it again by orrery import"),
        ("kind: pooling", "kind: poolin", "kind must be a kind of layer, got 'poolin'; did you mean 'pooling'"),
        ("  mode: max", "  mode: most", "pooling.mode must be one of max, average, got 'most'"),
        ("  mode: max", "  mood: max", "unknown key 'mood'; did you mean 'mode'"),
        ("  stride: [2, 2]", "  stride: 2", "stride: must be a valid tuple|stride"),
        ("  channels: 16", "  channels: 17", "output must be .*'channel': 17"),
        ("  channels: 16", '  channels: "16"', "channels: must be a valid integer"),
        ("inputs: [input]", "inputs: [nothing]", "inputs must be layers before it or data, got 'nothing'"),
        ("- name: conv2", "- name: conv1", "name must be a new one, got 'conv1'"),
        ("- name: conv2", "- name: input:2", "name must be a new one, got 'input:2'"),
        ("parallel: [sample, channel]", "parallel: [sample, height]", "parallel must be a list of some of"),
        ("parallel: [sample, channel]", "parallel: []", "parallel must be a list of some of"),
        ("weight: {shape: [16, 1, 3, 3]}", "weight: {shape: [16, 1, 3, 4]}", "parameters must be"),
        ("input: {channel: 1, height: 8, width: 8}", "input: {height: 8, channel: 1, width: 8}", "must give channel"),
        ("layers:", "layer:", "unknown key 'layer'; did you mean 'layers'"),
    ],
)
def test_mistakes_of_editing_are_named(tmp_path, old, new, message):
    """The message names the file, the layer and the rule."""
    assert old in DIGITS
    path = written(tmp_path, DIGITS.replace(old, new, 1))

    with pytest.raises(ConfigError, match=message) as caught:
        load_model(path, batch=2)

    assert "model.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


_TIED = """format: orrery model 2
batch: 4
data:
  input: {channel: 8, length: 4}
layers:
- name: first
  kind: matrix_product
  inputs: [input]
  depth: 8
  output: {channel: 8, length: 4}
  reads:
  - {sample: sample, channel: all, length: length}
  parameters:
    weight: {shape: [8, 8], split: true, axis: 0, key: one, aliases: [two]}
- name: second
  kind: matrix_product
  inputs: [first]
  depth: 8
  output: {channel: 8, length: 4}
  reads:
  - {sample: sample, channel: all, length: length}
  parameters:
    weight: {shape: [8, 8], split: true, shared: first, key: one}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("axis: 0", "axis: 2", "axis of parameter weight must be one of its 2, counted from 0, got 2"),
        ("axis: 0", "axis: -1", "axis of parameter weight must be one of its 2, counted from 0, got -1"),
        ("[two]", "[one]", "keys and aliases of parameters must differ, got 'one' for weight of layer first and again"),
        ("shared: first, ", "", "got 'one' for weight of layer first and again for weight of layer second"),
        ("shared: first", "shared: second", "layer second must come before it and train a parameter of the same key"),
    ],
)
def test_wrong_marks_of_tied_parameters_are_named(tmp_path, old, new, message):
    """A file says once which tensor of the state_dict a parameter is, and who trains it."""
    assert load_model(written(tmp_path, _TIED), batch=4).parameter_count == 64
    with pytest.raises(ConfigError, match=message):
        load_model(written(tmp_path, _TIED.replace(old, new)), batch=4)


def test_a_file_runs_no_code(tmp_path):
    """Tags of YAML that would build objects are refused."""
    path = written(tmp_path, f"!!python/object/apply:os.system ['touch {tmp_path}/owned']\n")

    with pytest.raises(ConfigError, match="is not YAML"):
        load_model(path, batch=2)
    assert not (tmp_path / "owned").exists()


def test_a_function_without_sizes_asks_for_them():
    """A function in place of a model's name gives the sizes of one sample."""
    with pytest.raises(ConfigError, match="must give the sizes of a sample of its input"):
        load_model("some.package:build", batch=2)
