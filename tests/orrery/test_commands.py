"""What the commands promise to scripts: one JSON value, these keys, these files."""

import json
import math
import re
from dataclasses import replace

import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.compute.compute_profile import MeasuredRow
from hwprofiles.compute.profile_file import load_profile
from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from planner.compression.settings import CompressionSettings
from planner.cost.cost_model import CostModel
from planner.models.registry import check_no_code, load_model

QUESTION = ["lenet5", "--cluster", "titanx-4", "--batch", "64"]
STRATEGY_KEYS = {
    "name",
    "additive_s",
    "simulated_s",
    "samples_per_s",
    "speedup",
    "moved_bytes",
    "exposed_communication_s",
    "peak_memory_bytes",
    "lower_bound_s",
}


@pytest.fixture
def ask(capsys):
    """Run a command with ``--json``; return what it printed, which is one JSON value on one line."""

    def run_command(*words):
        assert run_app(app, [*words, "--json"]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        assert printed.out.count("\n") == 1
        return json.loads(printed.out, parse_constant=pytest.fail)

    return run_command


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    """A plan for LeNet-5 on four devices."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    assert run_app(app, ["plan", *QUESTION, "--out", str(path)]) == 0
    return path


def test_models(ask):
    """Each model with its size; LeNet-5 as Caffe counts it."""
    models = {model["name"]: model for model in ask("models")}

    assert {"lenet5", "vgg16", "inception-v3", "resnet152", "densenet121", "cosmoflow", "conv1d"} <= models.keys()
    assert models["lenet5"]["parameters"] == 431_080
    assert models["vgg16"]["parameters"] == 138_357_544
    # A multiply-add counts as two: VGG-16 is printed as 15.5 G multiply-adds.
    assert models["vgg16"]["forward_flops"] == pytest.approx(2 * 15.5e9, rel=0.01)


@pytest.mark.parametrize("spec", ["vgg16:classes=10", "resnet-cifar:depth=14", "gpt2:layers=2,hidden=128,words=97"])
def test_models_of_the_catalogue_are_written_as_model_files(ask, tmp_path, spec):
    """What reads the file finds the network that the name means, to the last field of every layer."""
    path, graph = tmp_path / "own.yaml", load_model(spec, batch=16)
    written = ask("import", spec, "--out", str(path))
    assert written["parameters"] == graph.parameter_count
    own = load_model(path, batch=16)
    assert own.digest == graph.digest
    assert [layer.parameters for layer in own.layers] == [layer.parameters for layer in graph.layers]


def test_the_catalogue_says_what_its_models_read(tmp_path, capsys):
    words = ["import", "vgg16", "--input", "2x3x32x32", "--out", str(tmp_path / "own.yaml")]
    assert run_app(app, words) == 2
    assert "input and loss must be left out with vgg16, a model of the catalogue" in capsys.readouterr().err


def test_a_function_of_a_file_may_have_the_name_of_a_model(ask, tmp_path):
    (tmp_path / "own.py").write_text("import torch\n\ndef vgg16():\n    return torch.nn.Linear(3, 2)\n")
    words = ["--model-file", str(tmp_path / "own.py"), "--input", "4x3", "--out", str(tmp_path / "own.yaml")]
    assert ask("import", "vgg16", *words)["parameters"] == 8


def test_a_package_may_have_the_name_of_a_model(ask, tmp_path, monkeypatch):
    """A function of it is no parameter of the catalogue's model; files name no such code either."""
    (tmp_path / "vgg16.py").write_text("import torch\n\ndef make():\n    return torch.nn.Linear(3, 2)\n")
    monkeypatch.chdir(tmp_path)
    assert ask("import", "vgg16:make", "--input", "4x3", "--out", "own.yaml")["parameters"] == 8
    assert load_model("vgg16:make@3", batch=4).parameter_count == 8
    with pytest.raises(ConfigError, match="must not be code"):
        check_no_code("", "vgg16:make@3")


def test_clusters(ask):
    """Each cluster with its number of devices."""
    devices = {cluster["name"]: cluster["devices"] for cluster in ask("clusters")}

    assert devices["fdr-32x3"] == 96
    assert devices["p100-4x4"] == devices["k80-16"] == 16


def test_plan(ask, tmp_path):
    """Every layer has degrees that multiply to the number of its devices, all of them in the cluster."""
    answer = ask("plan", *QUESTION, "--out", str(tmp_path / "plan.json"))

    assert {"tables_s", "search_s", "additive_s", "configurations", "width"} <= answer.keys()
    assert answer["additive_s"] > 0
    assert len(answer["configurations"]) == 7
    for configuration in answer["configurations"].values():
        assert math.prod(configuration["degrees"].values()) == len(set(configuration["devices"]))
        assert set(configuration["devices"]) <= {0, 1, 2, 3}
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_plan_tells_people_only_what_says_something(capsys, tmp_path):
    """Without a search there is none to tell of; JSON has the same fields for all."""
    words = ["plan", *QUESTION, "--out", str(tmp_path / "plan.json")]
    said = {}
    for strategy in ("data", "layerwise"):
        assert run_app(app, [*words, "--strategy", strategy]) == 0
        said[strategy] = capsys.readouterr().out

    for name in ("tables (", "search (", "width"):
        assert (name in said["data"], name in said["layerwise"]) == (False, True)
    assert all("simulated (" in out and "compressed" not in out for out in said.values())
    assert run_app(app, [*words, "--refine", "1"]) == 0
    assert re.search(r"\d\.\d% above the lower bound", capsys.readouterr().out)


def test_simulate(ask, plan_file, tmp_path):
    """Without overlap and contention the replay is the additive cost; the trace is a list of events."""
    trace = tmp_path / "trace.json"
    answer = ask("simulate", str(plan_file), "--trace", str(trace))
    barriers = ask("simulate", str(plan_file), "--no-overlap", "--no-contention")

    assert {"iteration_s", "additive_s", "engine_s", "tasks"} <= answer.keys()
    assert barriers["iteration_s"] == pytest.approx(barriers["additive_s"], rel=1e-9)
    assert answer["additive_s"] == barriers["additive_s"]
    assert {"X", "M"} <= {event["ph"] for event in json.loads(trace.read_text())["traceEvents"]}


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_engines_agree(ask, plan_file, engine):
    """Both engines give the time that ``auto`` gives."""
    chosen = ask("simulate", str(plan_file), "--engine", engine, "--iterations", "3")

    assert chosen["iteration_s"] == pytest.approx(
        ask("simulate", str(plan_file), "--iterations", "3")["iteration_s"], rel=1e-9
    )


def test_compare(ask, tmp_path):
    """The strategies asked for, in that order; the page and its numbers in the folder and nothing else."""
    answer = ask("compare", *QUESTION, "--strategies", "data, layerwise,data", "--out", str(tmp_path / "new"))

    assert [strategy["name"] for strategy in answer["strategies"]] == ["data", "layerwise"]
    assert all(strategy.keys() >= STRATEGY_KEYS for strategy in answer["strategies"])
    assert answer["winner"] in {"data", "layerwise"}
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"index.html", "comparison.json"}
    assert json.loads((tmp_path / "new" / "comparison.json").read_text()) == answer


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan", "lenet6", "--cluster", "titanx-4", "--batch", "64"], "did you mean 'lenet5'"),
        (
            ["plan", "llama-3-70b", "--cluster", "titanx-4", "--batch", "64"],
            "; import its published configuration: orrery import config.json --out llama-3-70b.yaml",
        ),
        (["plan", "gpt2.json", "--cluster", "titanx-4", "--batch", "64"], "orrery import gpt2.json --out gpt2.yaml"),
        (["plan", "lenet5", "--cluster", "titanx4", "--batch", "64"], "did you mean 'titanx-4'"),
        (["plan", *QUESTION, "--strategy", "layerwize"], "layerwise"),
        (["plan", "lenet5:classes=0", "--cluster", "titanx-4", "--batch", "64"], "got '0'"),
        (["compare", *QUESTION, "--strategies", "data,,owt"], "''"),
        (["compare", *QUESTION, "--strategies", "date"], "data"),
    ],
)
def test_unknown_names_suggest_the_nearest(words, message, tmp_path, capsys):
    """One line, code 2, nothing written."""
    assert run_app(app, [*words, "--out", str(tmp_path / "out")]) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert message in printed.err
    assert list(tmp_path.iterdir()) == []


def test_cut_off_plan_is_refused(plan_file, tmp_path, capsys):
    """A plan file that lost its end names itself."""
    broken = tmp_path / "broken.json"
    broken.write_bytes(plan_file.read_bytes()[:-20])

    assert run_app(app, ["simulate", str(broken)]) == 2

    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert "broken.json" in printed.err


def test_missing_plan_is_named(tmp_path, capsys):
    """The trace that was asked for is not begun."""
    assert run_app(app, ["simulate", str(tmp_path / "none.json"), "--trace", str(tmp_path / "trace.json")]) == 2

    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert "none.json" in printed.err
    assert list(tmp_path.iterdir()) == []


def test_changed_cluster_is_priced_again(ask, plan_file, tmp_path):
    """A plan whose cluster is another today is priced on today's, and the answer says so."""
    content = json.loads(plan_file.read_text())
    other = tmp_path / "other.json"
    other.write_text(json.dumps(content | {"cluster_digest": "0" * 16, "additive_s": 1.0}))

    answer = ask("simulate", str(other))

    assert answer["additive_s"] == pytest.approx(content["additive_s"])
    note = f"cluster titanx-4 changed since the plan was made: 1 s then, {content['additive_s']:.6g} s now"
    assert [*content["notes"], note] == answer["notes"]


def test_changed_compute_profile_is_priced_again(ask, plan_file, monkeypatch):
    """Half the peak and memory bandwidth is said, with both times; other words about the device are not."""
    content = json.loads(plan_file.read_text())
    profile = load_profile("titanx-nervana")
    described = replace(profile, description="other words", sources=())
    slower = replace(
        profile,
        peak_flop_per_s=profile.peak_flop_per_s / 2,
        memory_bytes_per_s=profile.memory_bytes_per_s / 2,
    )
    assert ask("simulate", str(plan_file))["notes"] == content["notes"]
    monkeypatch.setattr("planner.cost.compute_time.profile_in", lambda *_: described)
    assert ask("simulate", str(plan_file))["notes"] == content["notes"]
    monkeypatch.setattr("planner.cost.compute_time.profile_in", lambda *_: slower)
    answer = ask("simulate", str(plan_file))

    assert answer["additive_s"] > content["additive_s"]
    then_s, now_s = (f"{values['additive_s']:.6g} s" for values in (content, answer))
    note = f"compute profile titanx-nervana changed since the plan was made: {then_s} then, {now_s} now"
    assert answer["notes"] == [*content["notes"], note]


def test_a_measured_row_is_part_of_the_costs_digest(monkeypatch):
    """Rows are no part of how a profile prints, but of what it prices."""
    graph, cluster = load_model("lenet5", batch=64), load_cluster("titanx-4")
    profile, row = load_profile("titanx-nervana"), {("lenet5", "conv1", "forward"): MeasuredRow(64, 1e-3)}
    before = CostModel(graph, cluster).compute_times.digest
    monkeypatch.setattr(
        "planner.cost.compute_time.profile_in", lambda *_: replace(profile, rows={**profile.rows, **row})
    )

    assert CostModel(graph, cluster).compute_times.digest != before


def test_tables_for_people(plan_file, tmp_path, capsys):
    """Without ``--json`` each command prints a table, and ``compare`` says where the page is."""
    folder = tmp_path / "page"
    assert run_app(app, ["simulate", str(plan_file)]) == 0
    assert run_app(app, ["plan", *QUESTION, "--strategy", "data"]) == 0
    assert run_app(app, ["compare", *QUESTION, "--strategies", "data"]) == 0
    printed = capsys.readouterr().out
    assert "iteration (" in printed
    assert "page:" not in printed
    assert run_app(app, ["compare", *QUESTION, "--strategies", "data", "--out", str(folder)]) == 0

    printed = capsys.readouterr().out
    assert f"page: {folder}/index.html" in printed


def test_plan_and_simulate_say_what_is_compressed(ask, capsys, tmp_path):
    plan, types = str(tmp_path / "plan.json"), {"gradients": "dynamic-tree", "activations": "linear:block=64"}
    words = ["plan", *QUESTION, "--strategy", "model", "--gradient-sync", "direct", "--out", plan]
    options = [word for key, value in types.items() for word in (f"--compress-{key}", value)]
    every = {**types, "gradient_layers": None, "activation_layers": None}
    assert ask(*words, *options)["compressed"] == every
    assert ask("simulate", plan)["compressed"] == every
    for told in ([*words, *options], ["simulate", plan]):
        assert run_app(app, told) == 0
        row = next(line for line in capsys.readouterr().out.splitlines() if "compressed" in line)
        assert "gradients as dynamic-tree; activations as linear:block=64" in row
    assert ask(*words)["compressed"] == {**every, "gradients": "", "activations": ""}
    assert run_app(app, words) == 0
    out = capsys.readouterr().out
    assert "strategy" in out
    assert "compressed" not in out  # nothing is, and nothing is said


def test_what_is_compressed_in_words():
    some = CompressionSettings(
        gradients="one-bit", gradient_layers=("fc1", "fc2"), activations="float16", activation_layers=()
    )
    assert some.describe() == "gradients of fc1, fc2 as one-bit; activations of no layer as float16"
    assert CompressionSettings().describe() == ""
