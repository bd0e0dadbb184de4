"""Studies of accuracy: statistics against tables, the tested network against torch, and small studies end to end."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from mnist_files import write_mnist
from undivided import Undivided, first_parameters

from executor.accuracy.accuracy_rank import HeldOut
from executor.accuracy.accuracy_request import AccuracyRequest
from executor.accuracy.accuracy_result import AccuracyResult, Training, mean_interval
from groundwork.errors import ConfigError
from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from planner.models.registry import load_model

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("warm_ranks")]

# Student's t, upper 2.5 % points: NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2.
T_TABLE = {1: 12.706, 4: 2.776, 9: 2.262}


@pytest.mark.parametrize("freedom", T_TABLE)
def test_intervals_are_those_of_the_t_table(freedom):
    values = list(range(freedom + 1))
    found = mean_interval(values)
    half = T_TABLE[freedom] * np.std(values, ddof=1) / np.sqrt(len(values))

    assert found.mean == np.mean(values)
    assert found.high - found.mean == pytest.approx(half, rel=1e-3)
    assert found.mean - found.low == pytest.approx(half, rel=1e-3)


def test_an_accuracy_lies_between_none_and_all():
    """Two seeds that differ much say nothing, not that the accuracy could be above 1."""
    row = study({"float32": [0.5, 0.8], "linear": [0.9, 1.0]}).rows[0]
    assert (row.accuracy.mean, row.accuracy.low, row.accuracy.high) == (pytest.approx(0.65), 0.0, 1.0)
    assert row.within


def study(accuracies, **changes):
    """A study of which only the last accuracies, by type and seed, are told."""
    question = AccuracyRequest(
        modes=("data",), types=tuple(accuracies)[1:], seeds=len(accuracies["float32"]), **changes
    )
    trainings = [
        Training(mode="data", type=kind, seed=seed, losses=[2.0, 1.0], accuracies=[0.5, value])
        for kind, values in accuracies.items()
        for seed, value in enumerate(values)
    ]
    return AccuracyResult(request=question, trainings=trainings, trained=100, tested=50)


def test_conclusions_follow_from_the_differences_seed_by_seed():
    plain = [0.90, 0.92, 0.94, 0.96]
    found = study(
        {
            "float32": plain,
            "linear": [value - 0.01 for value in plain],
            "mantissa": [0.95, 0.91, 0.96, 0.91],
            "float16": [value + 0.2 for value in plain],
        }
    )

    assert [row.conclusion for row in found.rows] == [
        "",
        "worse than float32",
        "no significant difference from float32",
        "better than float32",
    ]
    assert [row.within for row in found.rows] == [True, True, True, False]
    assert [row.difference.mean for row in found.rows] == pytest.approx([0, -0.01, 0.0025, 0.2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": 1}, "seeds must be >= 2, got 1"),
        ({"processes": 1}, "processes must be >= 2, got 1"),
        ({"modes": ("pipeline",)}, "modes must be of data, model, got pipeline"),
        ({"types": ("dynamic-tre",)}, "did you mean 'dynamic-tree'"),
    ],
)
def test_bad_questions_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        AccuracyRequest(**changes)


def test_residuals_are_for_gradients_alone():
    with pytest.raises(ConfigError, match="types must name one beside float32 that the modes can use"):
        AccuracyRequest(modes=("model",), types=("one-bit",)).cases()
    asked = AccuracyRequest(types=("one-bit", "linear"))
    assert [(case.mode, case.type) for case in asked.cases()] == [
        ("data", "float32"),
        ("data", "one-bit"),
        ("data", "linear"),
        ("model", "float32"),
        ("model", "linear"),
    ]
    assert asked.left_out() == ["one-bit"]


@pytest.mark.parametrize("model", ["digits", "mnist-mlp"])
def test_the_tested_network_is_that_of_torch_without_dropout(model, tmp_path):
    graph = load_model(model, batch=40)
    inputs = np.random.default_rng(0).uniform(-1, 1, graph.layers[0].input_shapes[0].sizes).astype(np.float32)
    parameters = {key: value.float() for key, value in first_parameters(graph, 3).items()}
    network = Undivided(graph, parameters)
    values = torch.from_numpy(inputs)
    for layer in graph.layers[:-1]:
        if "dropout" in layer.name:
            continue
        operation = replace(layer.operation, dropout=0.0) if layer.operation.kind == "linear" else layer.operation
        values = network._apply(replace(layer, operation=operation), [values], 0)
    classes = values.argmax(1).numpy()
    labels = np.where(np.arange(40) < 30, classes, (classes + 1) % 10)
    np.savez(tmp_path / "t.npz", inputs=inputs, targets=labels)

    by_layer = {}
    for (name, parameter), value in parameters.items():
        by_layer.setdefault(graph.index[name], {})[parameter] = value
    assert HeldOut(graph, str(tmp_path / "t.npz")).accuracy(by_layer) == 0.75


def test_digits_are_learnt_with_codes_as_without(tmp_path, capsys):
    pytest.importorskip("sklearn")
    words = ["--types", "dynamic-tree", "--seeds", "2", "--epochs", "3", "--learning-rate", "0.1", "--batch", "240"]
    words += ["--out", str(tmp_path / "a")]
    assert run_app(app, ["accuracy", *words, "--json"]) == 0

    values = json.loads(capsys.readouterr().out)
    losses = {(row["mode"], row["type"], row["seed"]): np.array(row["losses"]) for row in values["trainings"]}
    assert len(losses) == 2 * 2 * 2
    for seed in range(2):  # one network, however it is split; later steps magnify what rounding begins
        np.testing.assert_allclose(losses["data", "float32", seed][0], losses["model", "float32", seed][0], rtol=1e-3)
    for mode in ("data", "model"):
        assert losses[mode, "dynamic-tree", 0][0] != losses[mode, "float32", 0][0]
    assert all(row["accuracies"][-1] > 0.7 for row in values["trainings"])
    assert {row["verdict"] for row in values["compared"] if row["type"] == "float32"} == {""}
    assert json.loads((tmp_path / "a" / "accuracy.json").read_text()) == values
    assert (tmp_path / "a" / "index.html").stat().st_size > 400_000


def test_the_paper_s_network_trains_on_files_of_the_user(tmp_path, capsys):
    write_mnist(tmp_path, training=24, testing=8, packed=True)
    words = ["mnist-mlp", "--data", str(tmp_path), "--modes", "data", "--types", "linear", "--seeds", "2"]
    words += ["--epochs", "2", "--batch", "12", "--learning-rate", "0.01"]
    assert run_app(app, ["accuracy", *words]) == 0

    printed = capsys.readouterr().out
    assert "24 training samples, 8 held out" in printed
    assert "linear" in printed


BAD = {
    "no folder": (["mnist-mlp"], "must name a folder of samples of 1 x 28 x 28, got none, and digits are 1 x 8 x 8"),
    "no files": (["mnist-mlp", "--data", "."], "must hold train-images-idx3-ubyte or train-images-idx3-ubyte.gz"),
    "batch": (["digits", "--batch", "2000"], "batch must be at most the 1440 samples that are trained on, got 2000"),
    "odd batch": (["digits", "--batch", "241"], "batch must be a multiple of the 2 devices"),
    "another shape": (["resnet-cifar"], "data must name a folder of samples of 3 x 32 x 32"),
    "type": (["digits", "--types", "one-bit", "--modes", "model"], "types must name one beside float32"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_code_2(case, capsys, tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    words, message = BAD[case]

    assert run_app(app, ["accuracy", *words, "--out", "a"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "a").exists()
