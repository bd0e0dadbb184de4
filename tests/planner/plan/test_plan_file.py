"""Plan files: what is written is read, and every mistake is named."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given, strategies as st
from plans import cluster_of

from groundwork.errors import ConfigError
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan
from planner.plan.plan import Plan
from planner.plan.plan_file import PLAN_VERSION, load_plan, save_plan
from planner.strategies.named_strategies import named_strategy


@pytest.fixture(scope="module")
def plan():
    return make_plan(load_model("lenet5", batch=8), cluster_of("titanx-4", 4))


@pytest.fixture
def content(plan, tmp_path):
    """What a good file holds."""
    save_plan(plan, tmp_path / "good.json")
    return json.loads((tmp_path / "good.json").read_text())


def test_round_trip(plan, tmp_path):
    path = tmp_path / "plan.json"
    save_plan(plan, path)
    again = load_plan(path)
    for field in fields(Plan):
        assert getattr(again, field.name) == getattr(plan, field.name), field.name
    save_plan(again, tmp_path / "second.json")

    assert (tmp_path / "second.json").read_bytes() == path.read_bytes()
    assert json.loads(path.read_text())["version"] == PLAN_VERSION
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["plan.json", "second.json"]


TEXT = st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs"]))
"""Texts without characters that steer a terminal."""


@given(st.floats(1e-9, 1e9), st.integers(0, 2**40), TEXT)
def test_numbers_and_text_survive(plan, tmp_path_factory, seconds, width, text):
    path = tmp_path_factory.getbasetemp() / "any.json"
    request = replace(plan.request, strategy=f"{text}.yaml")  # the name of a file may be any text
    save_plan(replace(plan, simulated_s=seconds, width=width, notes=(text,), request=request), path)
    again = load_plan(path)

    assert (again.simulated_s, again.width, again.notes, again.request) == (seconds, width, (text,), request)


@pytest.mark.parametrize("parts", [10_000, 3])
def test_micro_batches_divide_the_batch(content, tmp_path, parts):
    """Ten thousand of a batch of 8 would be lowered for minutes."""
    content["micro_batching"]["parts"] = parts
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=rf"micro_batching\.parts must divide the batch of 8, got {parts:,}"):
        load_plan(tmp_path / "plan.json")


def test_a_plan_is_a_strategy_file_too(plan, tmp_path):
    save_plan(plan, tmp_path / "plan.json")

    assert named_strategy(str(tmp_path / "plan.json"), load_model("lenet5", batch=8), 4) == plan.configurations


def test_a_loaded_plan_lowers_to_the_same_program(plan, tmp_path):
    save_plan(plan, tmp_path / "plan.json")
    graph, cluster = load_model("lenet5", batch=8), cluster_of("titanx-4", 4)
    first, second = (lower_plan(each, graph, cluster) for each in (plan, load_plan(tmp_path / "plan.json")))

    for column in ("kind", "layer", "device", "peer", "size_bytes", "work_s", "region_low", "region_high", "after"):
        assert getattr(first, column).tobytes() == getattr(second, column).tobytes()


def test_every_cut_off_file_is_refused(content, tmp_path):
    path, text = tmp_path / "cut.json", json.dumps(content)
    for length in range(0, len(text), 41):
        path.write_text(text[:length])
        with pytest.raises(ConfigError, match=r"cut.json is not complete JSON"):
            load_plan(path)


MISTAKES = {
    "newer": ({"version": PLAN_VERSION + 1}, f"has version {PLAN_VERSION + 1}, this program reads {PLAN_VERSION}"),
    "of the version before": ({"version": 1}, "has version 1, which Orrery 0.1 wrote: make it again by orrery plan"),
    "newer, with more": ({"version": 9, "streams": 2}, "has version 9, this program"),
    "older than any": ({"version": 0}, "has version 0"),
    "unknown key": ({"strategie": "data"}, "strategie: unknown key; did you mean 'strategy'"),
    "text for a number": ({"batch": "8"}, "batch: .*integer"),
    "fraction for a number": ({"width": 1.5}, "width: .*integer"),
    "truth for a number": ({"batch": True}, "batch: .*integer"),
    "version by text": ({"version": "1"}, "version: .*integer"),
    "number for a text": ({"strategy": 3}, "strategy: .*string"),
    "number for a choice": ({"gradient_sync": 3}, "gradient_sync: .*'ring', 'ps'"),
    "no choice": ({"gradient_sync": "rings"}, "gradient_sync: .*'ring', 'ps'"),
    "request that breaks a rule": ({"recompute": "segments"}, "recompute must be none for layerwise"),
    "micro-batches in no order": ({"micro_batching": {"order": "none"}}, "micro_batching.order must be one of each, "),
    "no micro-batches": ({"micro_batching": {"parts": 0}}, "micro_batching must have parts >= 1"),
    "number for a list": ({"notes": 3}, "notes: .*array"),
    "number for a layer": ({"configurations": {"conv1": 3}}, "configurations.conv1: "),
    "null": ({"additive_s": None}, "additive_s: .*number"),
    "two": ({"batch": "8", "width": None}, "batch: .*; width: "),
}


@pytest.mark.parametrize(("change", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_named(content, tmp_path, change, message):
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(content | change))
    with pytest.raises(ConfigError, match=f"plan file .*wrong.json.*{message}") as caught:
        load_plan(path)
    assert "\n" not in str(caught.value)


def test_mistakes_inside_a_configuration(content, tmp_path):
    path = tmp_path / "wrong.json"
    content["configurations"]["conv1"]["degres"] = content["configurations"]["conv1"].pop("degrees")
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=r"conv1.degrees: missing; .*degres: unknown key; .* mean 'degrees'"):
        load_plan(path)


@pytest.mark.parametrize("key", ["version", "model", "configurations", "cluster_digest", "costs_digest"])
def test_missing_keys(content, tmp_path, key):
    del content[key]
    (tmp_path / "short.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=f"{key}: missing"):
        load_plan(tmp_path / "short.json")


@pytest.mark.parametrize("text", ["[]", "3", '"plan"', "null", "NaN", "{} {}", "\x00"])
def test_files_that_hold_something_else(tmp_path, text):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(ConfigError, match=r"plan file .*other.json"):
        load_plan(tmp_path / "other.json")


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "noise.json").write_bytes(b"\xff\xfe{}")
    for name, message in {
        "none.json": "cannot be read: No such",
        ".": "must be a regular file, got a folder",
        "noise.json": "not com",
    }.items():
        with pytest.raises(ConfigError, match=message):
            load_plan(tmp_path / name)


def test_a_failed_write_leaves_what_was_there(plan, tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    path.write_text("precious")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(ConfigError, match=r"plan file .*plan.json cannot be written: No space left"):
        save_plan(plan, path)

    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_folders_that_are_none(plan, tmp_path):
    (tmp_path / "file").write_text("precious")
    for path in (tmp_path / "none/plan.json", tmp_path / "file/plan.json", tmp_path):
        with pytest.raises(ConfigError, match=f"plan file {path} cannot be written: "):
            save_plan(plan, path)
    assert (tmp_path / "file").read_text() == "precious"


def test_edited_configurations_are_checked_when_lowered(plan, content, tmp_path):
    content["configurations"]["conv1"] = {"degrees": {"sample": 8}, "devices": list(range(8))}
    (tmp_path / "edited.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="configuration of conv1: degrees multiply to 8 parts"):
        lower_plan(load_plan(tmp_path / "edited.json"), load_model("lenet5", batch=8), cluster_of("titanx-4", 4))


def test_sub_batches_are_kept(tmp_path):
    graph, cluster = load_model("lenet5", batch=8), cluster_of("titanx-4", 2)
    plan = make_plan(graph, cluster, strategy="data", sub_batches=2, sub_batch_order="all")
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").micro_batching == plan.micro_batching
    with pytest.raises(ConfigError, match="sub_batches must be 1 for layerwise"):
        make_plan(graph, cluster, strategy="layerwise", sub_batches=4, update_each=True)
