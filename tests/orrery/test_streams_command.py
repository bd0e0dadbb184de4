"""``orrery streams``: its values, its page, and one line for bad input."""

import json

import pytest
from typer.testing import CliRunner

from orrery.cli import app


def run(*words):
    return CliRunner().invoke(app, ["streams", *words])


def test_values_are_one_json_value(tmp_path):
    page = tmp_path / "page.html"
    result = run("lenet5", "--device", "p100", "--batch", "64", "--json", "--out", str(page))
    values = json.loads(result.stdout)
    assert [row["name"] for row in values["schedules"]] == ["one-stream", "layers", "asynchronous", "critical-path"]
    assert values["schedules"][0]["gain"] == 1.0
    assert values["schedules"][-1]["streams"] == 3
    assert page.read_text().startswith("\n<!doctype html>") or page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--alpha", "0"], "alpha must be >= 1"),
        (["--beta", "-3"], "beta must be >= 1"),
        (["--max-streams", "2"], "streams of layers must be <= 2"),
        (["--device", "h100-80gb"], "'h100-80gb' must have a section 'launch'"),
        (["--schedules", "fastest"], "schedules must be of one-stream"),
        (["--hold-mib", "-1"], "hold_mib must be >= 0, got -1"),
        (["--cores", "2"], "cores must be left out without --run, got '2'"),
        (["--run", "--max-streams", "2"], "max_streams must be left out with --run, whose streams are threads"),
        (["--cluster", "p100-4x4", "--out", "page.html"], "out must be left out with --cluster, got 'page.html'"),
        (["--cluster", "p100-4x4", "--alpha", "2"], "alpha must be left out with --cluster, got '2'"),
        (["--device", "nothing"], "unknown compute profile 'nothing'"),
    ],
)
def test_bad_input_is_refused(words, message):
    result = run("lenet5", "--batch", "8", *words)
    assert result.exception is not None
    assert message in str(result.exception)


@pytest.mark.timeout(120)
def test_run_measures_and_predicts(tmp_path):
    page = tmp_path / "page.html"
    words = ["lenet5", "--batch", "4", "--run", "--cores", "2", "--rounds", "1", "--out", str(page)]
    values = json.loads(run(*words, "--json").stdout)
    assert [row["name"] for row in values["schedules"]] == ["one-stream", "layers", "asynchronous", "critical-path"]
    assert all(row["predicted_s"] > 0 and row["step_s"] > 0 for row in values["schedules"])
    assert "2 cores" in page.read_text()


def test_run_needs_two_cores():
    result = run("lenet5", "--batch", "4", "--run", "--cores", "1")
    assert "cores must be >= 2 for streams side by side, got 1" in str(result.exception)


def test_a_cluster_has_its_arrangements():
    result = run("alexnet", "--cluster", "p100-4x4:nodes=1", "--batch", "256", "--tries", "2", "--json")
    rows = json.loads(result.stdout)["rows"]
    assert [row["arrangement"] for row in rows][:2] == ["one stream", "one stream"]
    assert rows[-1]["arrangement"] == "chosen"
    assert rows[-1]["iteration_s"] == min(row["iteration_s"] for row in rows)
