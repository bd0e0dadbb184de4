"""The named strategies against what the papers mean by them, and strategy files with every mistake."""

import json
from math import prod

import pytest

from groundwork.errors import ConfigError
from planner.layouts.configurations import Configuration, all_configurations, space_of
from planner.models.registry import load_model
from planner.strategies.named_rules import NAMED
from planner.strategies.named_strategies import named_strategy, spaces_of, strategy_names

COUNT = 4


def divisor(size, most=16):
    return max(degree for degree in range(1, most + 1) if size % degree == 0)


@pytest.fixture(scope="module")
def vgg16():
    return load_model("vgg16", batch=64)


@pytest.fixture(scope="module")
def lenet5():
    return load_model("lenet5", batch=8)


def split(configuration):
    """The dimensions that are split."""
    return {dim: degree for dim, degree in configuration.degrees.items() if degree > 1}


def test_data_splits_samples(vgg16):
    strategy = named_strategy("data", vgg16, 16)

    assert {name: split(c) for name, c in strategy.items()} == {v.name: {"sample": 16} for v in vgg16.layers}
    assert {c.devices for c in strategy.values()} == {tuple(range(16))}


def test_model_splits_channels_as_far_as_they_divide(vgg16):
    """1,000 classes are split ten ways; the loss cannot be split by channels."""
    strategy = named_strategy("model", vgg16, 16)
    for layer in vgg16.layers[:-1]:
        assert split(strategy[layer.name]) == {"channel": divisor(layer.output.size("channel"))}
    assert split(strategy[vgg16.layers[-2].name]) == {"channel": 10}
    assert split(strategy[vgg16.layers[-1].name]) == {}


def test_owt_splits_samples_then_channels(vgg16):
    """Krizhevsky, "One weird trick", 2014: convolutional layers by samples, fully-connected ones by channels."""
    strategy = named_strategy("owt", vgg16, 16)
    for layer in vgg16.layers:
        dense = layer.operation.kind == "linear"
        degree = divisor(layer.output.size("channel"))
        assert split(strategy[layer.name]) == ({"channel": degree} if dense else {"sample": 16})


def test_spatial_splits_positions_as_near_to_squares_as_divides(vgg16):
    strategy = named_strategy("spatial", vgg16, 16)
    sides = {224: (4, 4), 112: (4, 4), 56: (4, 4), 28: (4, 4), 14: (7, 2), 7: (7, 1)}
    for layer in vgg16.layers:
        if layer.output.positions:
            height, width = sides[layer.output.size("height")]
            expected = {"height": height, "width": width}
        else:
            expected = {"channel": divisor(layer.output.size("channel")) if layer.name.startswith("fc") else 1}
        assert split(strategy[layer.name]) == {dim: degree for dim, degree in expected.items() if degree > 1}


def test_spatial_in_one_and_three_dimensions():
    line, volume = (named_strategy("spatial", load_model(name, batch=4), 8) for name in ("conv1d", "cosmoflow"))

    assert split(line["conv1"]) == {"length": 8}
    assert split(volume["conv1"]) == {"depth": 2, "height": 2, "width": 2}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("model", ["googlenet", "densenet121", "cosmoflow", "conv1d", "inception-v3"])
@pytest.mark.parametrize("count", [1, 6, 12])
def test_named_strategies_are_among_those_offered(name, model, count):
    """So that the search, which takes the best of those, is never worse by Eq. 1."""
    graph = load_model(model, batch=count)
    for layer, space in zip(graph.layers, spaces_of(graph, named_strategy(name, graph, count), count), strict=True):
        everything = all_configurations(layer.output, layer.parallel_dims, count)
        alike = [c for c in range(everything.size) if (everything.degrees[c] == space.degrees[0]).all()]
        assert space.configuration(0).devices in [everything.configuration(c).devices for c in alike]


@pytest.mark.parametrize("name", ["data", "owt"])
@pytest.mark.parametrize(("batch", "nearest"), [(1, 4), (3, 4), (5, 4), (7, 8), (9, 8), (63, 64)])
def test_a_batch_that_does_not_divide_names_the_nearest_that_does(name, batch, nearest):
    with pytest.raises(
        ConfigError, match=f"batch must be a multiple of the 4 .*got {batch}; the nearest is {nearest}$"
    ):
        named_strategy(name, load_model("lenet5", batch=batch), COUNT)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("dta", "data"),
        ("layer-wise", "layerwise"),
        ("OWT", "owt"),
        ("optcnn", "layerwise"),
        ("DP", "data"),
        ("zz", None),
        ("spacial", "spatial"),
    ],
)
def test_unknown_names_suggest_the_nearest(lenet5, name, near):
    with pytest.raises(ConfigError, match=f"must be one of {', '.join(strategy_names())} or a file") as caught:
        named_strategy(name, lenet5, COUNT)
    assert f"got {name!r}" in str(caught.value)
    assert ("did you mean" in str(caught.value)) == (near is not None)
    assert near is None or str(caught.value).endswith(f"{near!r}?")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tensor", "is tensor=N"),
        ("tp=8", "is tensor=N"),
        ("sequence", "beside tensor=N"),
        ("zero3", "zero=1, zero=2, fsdp or hsdp=N"),
        ("fully-sharded", "zero=1, zero=2, fsdp or hsdp=N"),
        ("cp=2", "is context=N"),
        ("ep=2", "is expert=N"),
        ("ulysses", "beside context=N"),
    ],
)
def test_names_of_the_field_say_what_there_is(lenet5, name, said):
    with pytest.raises(ConfigError, match=f"got '{name}'; .*{said}"):
        named_strategy(name, lenet5, COUNT)


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("tensor=2,ulysses", "must stand beside context=N"),
        ("context=3,ulysses", "must have attention with heads, of keys too, that context x tensor = 3 divides"),
    ],
)
def test_ulysses_says_what_it_needs(words, rule):
    graph = load_model("gpt2:layers=1,hidden=64,heads=4,words=50,sequence=12", batch=4)
    with pytest.raises(ConfigError, match=f"ulysses {rule}"):
        named_strategy(words, graph, 8)


def read(tmp_path, text, graph, *, name="mine.yaml", count=COUNT):
    path = tmp_path / name
    path.write_text(text)
    return named_strategy(str(path), graph, count)


def test_files_say_degrees_and_devices(tmp_path, lenet5):
    """A default for layers that are not named, less what they cannot split; packed unless devices are given."""
    text = """
configurations:
  default: {degrees: {sample: 2, height: 2}}
  conv1: {degrees: {channel: 4}, devices: [3, 1, 2, 0]}
  softmax: {degrees: {}}
"""
    strategy = read(tmp_path, text, lenet5)

    assert split(strategy["conv1"]) == {"channel": 4}
    assert strategy["conv1"].devices == (3, 1, 2, 0)
    assert split(strategy["pool1"]) == {"sample": 2, "height": 2}
    assert strategy["pool1"].devices == (0, 1, 2, 3)
    assert split(strategy["fc1"]) == {"sample": 2}  # it has no height
    assert strategy["softmax"] == Configuration({"sample": 1}, (0,))


def test_json_means_what_yaml_means(tmp_path, lenet5):
    content = {"configurations": {"default": {"degrees": {"sample": 4}, "devices": [0, 1, 2, 3]}}}
    strategy = read(tmp_path, json.dumps(content), lenet5, name="mine.json")

    assert strategy == named_strategy("data", lenet5, COUNT)


WHOLE = "default: {degrees: {sample: 1}}"
MISTAKES = {
    "unknown layer": (f"{WHOLE}, conv9: {{degrees: {{}}}}", r"lenet5 has no layer 'conv9'; did you mean 'conv"),
    "layer by number": (f"{WHOLE}, 1: {{degrees: {{}}}}", "lenet5 has no layer 1"),
    "layers left out": ("conv1: {degrees: {sample: 2}}", "configurations.pool1 must have degrees, got None"),
    "no degrees": (f"{WHOLE}, conv1: {{devices: [0]}}", "configurations.conv1 must have degrees"),
    "a number for a layer": (f"{WHOLE}, conv1: 4", "configurations.conv1 must have degrees, got 4"),
    "unknown key": (f"{WHOLE}, conv1: {{degrees: {{}}, device: [0]}}", "unknown key 'device'; known are degrees, dev"),
    "mixed keys": (f"{WHOLE}, conv1: {{degrees: {{}}, 1: 0, b: 0}}", "has the unknown key 1;"),
    "unknown dimension": (f"{WHOLE}, conv1: {{degrees: {{depth: 2}}}}", "depth is not one of its parallelizable dim"),
    "dimension of others": (f"{WHOLE}, fc1: {{degrees: {{height: 2}}}}", "height is not one of its parallelizable"),
    "misspelt default": ("default: {degrees: {sampel: 4}}", "has no dimension 'sampel'; did you mean 'sample'"),
    "does not divide": (f"{WHOLE}, conv1: {{degrees: {{sample: 3}}}}", "degree of sample must divide 8, got 3"),
    "zero": (f"{WHOLE}, conv1: {{degrees: {{sample: 0}}}}", "conv1.degrees must be integers >= 1, got"),
    "fraction": (f"{WHOLE}, conv1: {{degrees: {{sample: 1.5}}}}", "conv1.degrees must be integers >= 1, got"),
    "truth": (f"{WHOLE}, conv1: {{degrees: {{sample: true}}}}", "conv1.degrees must be integers >= 1, got"),
    "too many": (f"{WHOLE}, conv1: {{degrees: {{sample: 8}}}}", "multiply to 8 parts, the cluster has 4 devices"),
    "far too many": (
        f"{WHOLE}, conv1: {{degrees: {{sample: 8, channel: 20, height: 24, width: 24}}}}",
        "to 92160 parts",
    ),
    "repeated device": (f"{WHOLE}, conv1: {{degrees: {{sample: 2}}, devices: [1, 1]}}", "must be 2 different ones"),
    "device missing": (f"{WHOLE}, conv1: {{degrees: {{sample: 2}}, devices: [1]}}", "must be 2 different ones, got 1"),
    "no such device": (f"{WHOLE}, conv1: {{degrees: {{sample: 2}}, devices: [1, 4]}}", r"must be in 0..3, got 1..4"),
    "device by name": (f"{WHOLE}, conv1: {{degrees: {{}}, devices: [gpu0]}}", "devices must be a list of integers"),
}


@pytest.mark.parametrize(("rows", "message"), MISTAKES.values(), ids=MISTAKES)
def test_files_with_mistakes(tmp_path, lenet5, rows, message):
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, f"configurations: {{{rows}}}", lenet5)


def test_huge_degrees_are_refused_at_once(tmp_path, lenet5):
    with pytest.raises(ConfigError, match="degree of sample must divide 8, got 1000000000000"):
        read(tmp_path, "configurations: {default: {degrees: {sample: 1000000000000}}}", lenet5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not YAML or is cut off"),
        ("", "must map 'configurations' to layers"),
        ("[]", "must map 'configurations' to layers"),
        ("configurations: 3", "must map 'configurations' to layers"),
        (
            f"configurations: {{{WHOLE}}}\ndevices: 4",
            "has the unknown key 'devices'; known are configurations and meshes",
        ),
    ],
)
def test_files_that_hold_something_else(tmp_path, lenet5, text, message):
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, text, lenet5)


@pytest.mark.parametrize("name", ["mine.json", "mine.yaml"])
def test_files_that_were_cut_off(tmp_path, lenet5, name):
    rows = {layer.name: {"degrees": {"sample": 2}, "devices": [0, 1]} for layer in lenet5.layers}
    text = json.dumps({"configurations": rows})
    assert read(tmp_path, text, lenet5, name=name)["conv1"].parts == 2
    for length in range(0, len(text) - 1, 17):
        with pytest.raises(ConfigError, match="strategy file"):
            read(tmp_path, text[:length], lenet5, name=name)


def test_files_that_cannot_be_read(tmp_path, lenet5):
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "noise.json").write_bytes(b"\xff\xfe\x00")
    for name, message in {
        "none.json": "cannot be read: No such",
        "folder.yaml": "must be a regular file, got a folder",
        "noise.json": "not",
    }.items():
        with pytest.raises(ConfigError, match=message):
            named_strategy(str(tmp_path / name), lenet5, COUNT)


def test_every_layer_needs_a_configuration(lenet5):
    strategy = named_strategy("data", lenet5, COUNT)
    spaces = spaces_of(lenet5, strategy, COUNT)

    assert [prod(space.degrees[0]) for space in spaces] == [COUNT] * len(lenet5.layers)
    assert spaces[0].configuration(0) == space_of(lenet5.layers[0], strategy["conv1"], COUNT).configuration(0)
    del strategy["conv2"]
    with pytest.raises(ConfigError, match="every layer a configuration, conv2 has none"):
        spaces_of(lenet5, strategy, COUNT)
