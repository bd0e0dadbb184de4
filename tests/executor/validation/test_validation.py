"""Validations of a small network by two real processes, and what they join, against what the parts themselves say."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from executor.lab.inside import is_inside
from executor.lab.tools import require_lab
from executor.probe.device_probe import device_name
from executor.runtime.devices import CpuDevice
from executor.validation.planned_variants import variants_of
from executor.validation.validation_request import ValidationRequest
from executor.validation.validation_result import Validation, relative_error
from executor.validation.validation_run import validate
from groundwork.errors import ConfigError
from groundwork.progress import Interrupted
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan
from planner.simulation.program_replay import replay

pytestmark = [pytest.mark.timeout(200), pytest.mark.usefixtures("warm_ranks")]
PYTHON = sys.executable
"""The interpreter that can live in a lab."""
CLUSTER = "lab-4:nodes=2"
STRATEGIES = ["data", "model", "layerwise", "pipeline", "channel", "data=1", "zero=1", "fsdp"]


def request(**changes):
    """A request for a short validation on two ranks of the lab's cluster."""
    given = {"batch": 8, "processes": 2, "cluster": CLUSTER, "rounds": 1, "turn_s": 0.01, "device": "cpu"}
    return ValidationRequest(**given | changes)


def obstacle():
    try:
        require_lab()
    except ConfigError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def found():
    return validate("lenet5", request(strategies=tuple(STRATEGIES), seed=5))


def test_every_strategy_is_predicted_and_measured(found):
    assert [s.name for s in found.strategies] == STRATEGIES
    for strategy in found.strategies:
        assert list(strategy.ladder_s) == ["additive", "overlap", "contention", "measured"]
        assert strategy.measured_s == np.median(strategy.iterations_s)
        low, high = strategy.quartiles_s
        assert 0 < low <= strategy.measured_s <= high
        assert strategy.error == pytest.approx(strategy.predicted_s / strategy.measured_s - 1)
        assert strategy.rounds == 1
        assert len(strategy.iterations_s) >= 3


def test_all_strategies_compute_the_same_network(found):
    assert found.loss_difference < 1e-4
    assert all(len(s.losses) == 5 for s in found.strategies)
    assert all(0.5 < loss < 5 for s in found.strategies for loss in s.losses)  # of ten classes: ln 10 at first


def test_moved_bytes_are_those_of_the_cost_model(found):
    edges = found.strategies[1].edges
    assert edges["measured_bytes"].sum() > 0
    assert edges["measured_bytes"].tolist() == edges["predicted_bytes"].tolist()
    assert all(s.bytes_equal for s in found.strategies)


def test_joined_tables_add_up(found):
    for strategy in found.strategies:
        tasks, compute = strategy.tasks, ~strategy.tasks["kind"].isin(["transfer", "gather", "collective"])
        assert tasks["id"].tolist() == list(range(len(tasks)))
        assert (tasks["measured_s"] >= 0).all()
        assert strategy.simulated["name"].tolist() == strategy.measured["name"].tolist()
        for key in ("predicted_s", "measured_s"):
            assert strategy.layers[f"compute_{key}"].sum() == pytest.approx(tasks[compute][key].sum())
            assert strategy.layers[f"communication_{key}"].sum() == pytest.approx(tasks[~compute][key].sum())
            for kind, value in zip(strategy.kinds["kind"], strategy.kinds[key], strict=True):
                total = tasks[tasks["kind"] == kind][key].sum()
                assert value == pytest.approx(total) if kind != "collective" else value > 0


def test_tasks_are_predicted_by_their_samples(found):
    """Samples of parts on the same machine at the same time, not a catalogue's processor."""
    catalogue = make_plan(load_model("lenet5", batch=8), load_cluster(CLUSTER), strategy="data")
    program = lower_plan(catalogue, load_model("lenet5", batch=8), load_cluster(CLUSTER))
    tasks = found.strategies[0].tasks
    convolution = (tasks["layer"] == "conv2") & (tasks["kind"] == "weight_gradient")
    assert tasks[convolution]["predicted_s"].to_numpy() != pytest.approx(program.work_s[convolution.to_numpy()])
    arithmetic = tasks[program.is_compute[tasks["id"].to_numpy()]]
    assert 0.1 < arithmetic["predicted_s"].sum() / arithmetic["measured_s"].sum() < 10


def test_the_environment_is_that_of_the_ranks(found):
    assert found.environment["back end"] == "gloo"
    assert found.environment["device"] == device_name(CpuDevice())
    assert found.environment["gradients joined up to"] == "1 MiB (orrery run: 4 MiB)"


def test_stood_in_arithmetic_takes_the_time_of_the_profile():
    """Waits of one whole network on one of two processes: nothing but arithmetic, so the prediction must hold."""
    found = validate("lenet5", request(batch=64, strategies=("layerwise", "data"), stand_in_compute=True))
    strategy = found.strategies[0]
    assert np.isnan(found.loss_difference)
    long = strategy.tasks[strategy.tasks["predicted_s"] > 1e-3]
    assert (long["measured_s"] >= long["predicted_s"]).all()
    graph, cluster = load_model("lenet5", batch=64), load_cluster(CLUSTER)
    plan = make_plan(graph, cluster, strategy="layerwise")
    assert strategy.predicted_s == replay(lower_plan(plan, graph, cluster)).iteration_s


class _Times:
    """Stands for a strategy of which only the times are asked."""

    def __init__(self, name, predicted_s, measured_s):
        self.name, self.predicted_s, self.measured_s = name, predicted_s, measured_s
        self.error = relative_error(predicted_s, measured_s)


@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9)), min_size=3, max_size=6, unique_by=lambda p: p[0]))
def test_rank_correlation_is_spearmans(times):
    from scipy.stats import spearmanr  # half a second in every process that collects this file

    strategies = tuple(_Times(str(i), *pair) for i, pair in enumerate(times))
    found = Validation(model="m", batch=1, cluster="c", devices=(), stand_in=False, lab=False, strategies=strategies)
    predicted, measured = zip(*times, strict=True)
    if len(set(measured)) == len(measured):
        assert found.rank_correlation == pytest.approx(spearmanr(predicted, measured).statistic)
        assert found.order_right == (np.argsort(predicted).tolist() == np.argsort(measured).tolist())
    assert abs(found.worst.error) == max(abs(p / m - 1) for p, m in times)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--processes", "3", "--cluster", CLUSTER], "processes must be the 2 devices"),
        (["--processes", "2", "--stand-in-compute"], "cluster must be given"),
        (["--processes", "2", "--spread", "0"], "spread must be > 0, got 0"),
        (["--processes", "2", "--budget", "0"], "budget_s must be > 0, got 0"),
        (["--cluster", CLUSTER], "processes must be given"),
        (["--processes", "2", "--cluster", CLUSTER, "--stand-in-compression"], "stand_in_compression must be left out"),
        (["--processes", "2", "--cluster", CLUSTER, "--compress-gradients", "dynamic"], "did you mean 'dynamic-tree'"),
        (["--cluster", CLUSTER, "--lab", CLUSTER], "cluster must be left out with a lab"),
        (["--processes", "2", "--cluster", CLUSTER, "--strategies", "dat"], "did you mean 'data'"),
        (["--processes", "2", "--cluster", CLUSTER, "--gradient-sync-order", "first"], "got 'first'"),
    ],
)
def test_bad_questions_are_refused_on_one_line(capsys, words, reason):
    assert run_app(app, ["validate", "lenet5", "--batch", "8", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert reason in printed.err


@pytest.mark.parametrize("command", ["probe", "validate"])
def test_without_torch_the_commands_say_so(capsys, tmp_path, monkeypatch, command):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    words = [command, "lenet5", "--batch", "8", "--processes", "2", "--out", str(tmp_path / "out")]
    assert run_app(app, words) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert f"{command} must have torch" in printed
    assert not (tmp_path / "out").exists()


class _Nowhere:
    """A lab's hosts, which nothing must be started on."""

    def command(self, rank, command):
        raise AssertionError

    environment = command


def test_a_lab_has_no_gpus(monkeypatch):
    with pytest.raises(ConfigError, match="device must be auto or cpu in a lab"):
        validate("lenet5", request(strategies=("data",), device="cuda"), hosts=_Nowhere())
    asked = {}

    def launched(ranks, **_):
        asked["device"] = ranks.job.run.device
        raise KeyboardInterrupt

    monkeypatch.setattr("executor.validation.validation_run.launch", launched)
    with pytest.raises(KeyboardInterrupt):
        validate("lenet5", request(strategies=("data",), device="auto"), hosts=_Nowhere())
    assert asked == {"device": "cpu"}


def test_the_command_writes_the_page_and_its_numbers(capsys, tmp_path, monkeypatch, found):
    asked = {}

    def answer(model, request, **changes):
        asked.update(changes, model=model, request=request)
        return found

    monkeypatch.setattr("executor.validation.validation_run.validate", answer)
    words = ["lenet5", "--processes", "2", "--batch", "8", "--cluster", CLUSTER, "--strategies", "data, model,data"]
    words += ["--gradient-sync-order", "ready, reuse"]
    assert run_app(app, ["validate", *words, "--rounds", "4", "--out", str(tmp_path), "--json", "--threads", "1"]) == 0
    request = asked["request"]
    assert request.gradient_sync_orders == ("ready", "reuse")
    assert (asked["model"], request.processes, request.batch, request.cluster) == ("lenet5", 2, 8, CLUSTER)
    assert (request.strategies, request.rounds, asked["hosts"]) == (("data", "model"), 4, None)
    assert (request.run_options.stand_in, request.run_options.threads) == (False, 1)
    values = json.loads(capsys.readouterr().out)
    assert values == json.loads((tmp_path / "validation.json").read_text())
    assert [row["name"] for row in values["strategies"]] == [s.name for s in found.strategies]
    for row in values["strategies"]:
        tasks = pd.DataFrame(row["tasks"])
        assert {"id", "name", "kind", "layer", "predicted_s", "measured_s", "error"} <= set(tasks)
        assert row["ladder_s"]["measured"] == row["measured_s"]
    assert "predicted and measured" in (tmp_path / "index.html").read_text()


@pytest.mark.lab
@pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "a lab can be made")
def test_the_lab_is_predicted(tmp_path):
    """Real packets, waits for arithmetic; the bound is generous, for other work may disturb (see the benchmark)."""
    assert not is_inside()
    words = ["vgg11-cifar", "--batch", "16", "--lab", "lab-4:nodes=2", "--stand-in-compute"]
    words += ["--strategies", "data,model"]
    command = [PYTHON, "-m", "orrery", "validate", *words, "--rounds", "1", "--budget", "1", "--json"]
    for _ in range(3):
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        values = json.loads(ended.stdout)
        assert all(row["bytes_equal"] for row in values["strategies"])
        errors = [row["error"] for row in values["strategies"]]
        if values["order_right"] and max(map(abs, errors)) < 0.35:
            return
        if os.getloadavg()[0] > 2 * len(os.sched_getaffinity(0)):
            pytest.skip(f"the machine is busy: load {os.getloadavg()[0]:.1f}, errors {errors}")
    pytest.fail(f"errors {errors}, order right: {values['order_right']}")


def test_strategies_are_also_run_with_what_they_send_compressed():
    """Real codes beside waits for arithmetic; what they take was measured here, not priced by the cluster's profile."""
    types = ("dynamic-tree", "one-bit")
    found = validate(
        "lenet5", request(strategies=("data", "layerwise"), compress_gradients=types, stand_in_compute=True)
    )
    names = ["data", "data, dynamic-tree", "data, one-bit", "layerwise"]
    assert [s.name for s in found.strategies] == names
    assert [s.compressed for s in found.strategies] == ["", "gradients as dynamic-tree", "gradients as one-bit", ""]
    assert found.refused == dict.fromkeys(
        ["layerwise, dynamic-tree", "layerwise, one-bit"], "its search does not consider compression"
    )
    assert all(s.bytes_equal for s in found.strategies)
    by_name = {s.name: s for s in found.strategies}
    assert [(row.name, row.plain) for row in found.speedups] == [(name, "data") for name in names[1:3]]
    for row in found.speedups:
        assert row.measured == by_name["data"].measured_s / by_name[row.name].measured_s
        assert row.predicted == by_name["data"].predicted_s / by_name[row.name].predicted_s
    tasks = by_name["data, one-bit"].tasks
    coding = tasks[tasks["kind"].isin(["compress", "decompress"])]
    assert len(coding) > 8
    assert (coding["predicted_s"] > 0).all()
    assert (coding["measured_s"] > 0).all()
    graph, cluster = load_model("lenet5", batch=8), load_cluster(CLUSTER)
    plan = make_plan(graph, cluster, strategy="data", gradient_sync="ps-spread", compress_gradients="one-bit")
    streamed = lower_plan(plan, graph, cluster).work_s[coding["id"].to_numpy()]
    assert coding["predicted_s"].to_numpy() != pytest.approx(streamed)


def test_types_that_are_in_both_lists_compress_both():
    graph = load_model("lenet5", batch=8)
    found = variants_of(graph, ["data", "data"], "ring", gradients=["linear", "float16"], activations=["linear"])
    rows = [(v.name, v.gradient_sync, v.compressed.gradients, v.compressed.activations, v.plain) for v in found]
    assert rows == [
        ("data", "ring", "", "", ""),
        ("data, linear", "ps-spread", "linear", "linear", "data"),
        ("data, float16", "ring", "float16", "", "data"),
    ]
    (_, coded) = variants_of(graph, ["data"], "direct", gradients=["linear"])
    assert coded.gradient_sync == "direct"
    for wrong, reason in (({"gradients": ["linea"]}, "did you mean"), ({"activations": ["one-bit"]}, "residual")):
        with pytest.raises(ConfigError, match=reason):
            variants_of(graph, ["data"], "ring", **wrong)
    with pytest.raises(ConfigError, match=r"gradient_sync must be one of .*, got 'auto'"):
        variants_of(graph, ["data"], "auto")


def test_an_interrupt_keeps_what_finished_rounds_have_measured():
    """The ranks are ended in the third round, or in a later one; of the turn that it had begun nothing counts."""

    def progress(label, done, total):
        if total == 2 * 99 and done > 4:
            raise KeyboardInterrupt

    asked = request(
        strategies=("data", "model"),
        stand_in_compute=True,
        rounds=99,
        spread=1e-9,
    )
    with pytest.raises(Interrupted) as interrupt:
        validate("lenet5", asked, progress=progress)

    found = interrupt.value.finished
    rounds = int(re.fullmatch(r"Interrupted after (\d+) rounds; at most 99 were to be run\.", found.notes[0])[1])
    assert 2 <= rounds < 99
    assert [(row.name, row.rounds) for row in found.strategies] == [("data", rounds), ("model", rounds)]
