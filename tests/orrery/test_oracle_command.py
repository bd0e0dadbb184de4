"""``orrery oracle``: one JSON value, a table, a page, and one line for bad input."""

import json

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app

QUESTION = ["oracle", "lenet5", "--cluster", "titanx-4", "--dataset", "cifar10"]


def test_json_is_one_value(capsys):
    assert run_app(app, [*QUESTION, "--gpus", "1..4", "--batch", "64", "--json"]) == 0
    printed = capsys.readouterr()

    values = json.loads(printed.out, parse_constant=pytest.fail)
    assert printed.out.count("\n") == 1
    assert printed.err == ""
    assert (values["samples"], values["scaling"], values["batch"]) == (50_000, "strong", 64)
    assert {row["strategy"] for row in values["rows"]} >= {"serial", "data", "filter", "channel", "layer", "spatial"}
    assert set(values["winners"]) == {"1", "2", "4"}


def test_strategies_of_several_options_are_all_meant(capsys):
    words = ["--strategies", "serial", "--gpus", "1..4", "--strategies=data", "--strategies", "filter"]
    assert run_app(app, [*QUESTION, *words, "--json"]) == 0
    assert {row["strategy"] for row in json.loads(capsys.readouterr().out)["rows"]} == {"serial", "data", "filter"}


def test_a_table_a_headline_and_a_page(capsys, tmp_path):
    words = ["--gpus", "2,4", "--strategies", "data,spatial", "--budget-gpu-hours", "1", "--out", str(tmp_path / "o")]
    assert run_app(app, [*QUESTION, *words]) == 0
    printed = capsys.readouterr().out

    assert "lenet5 on titanx-4, cifar10, batch 32 per device" in printed
    assert "within 1 device hours for 1 epoch" in printed
    assert "spatial: at most" in printed
    assert "Weak scaling" in printed
    assert (tmp_path / "o" / "index.html").stat().st_size > 400_000
    assert json.loads((tmp_path / "o" / "oracle.json").read_text())["budget_gpu_hours"] == 1.0


@pytest.mark.usefixtures("warm_workers")
def test_the_second_answer_stands_beside_the_first(capsys, tmp_path):
    words = ["--gpus", "4", "--batch", "64", "--strategies", "data,filter", "--simulate", "--epochs", "2"]
    assert run_app(app, [*QUESTION, *words, "--out", str(tmp_path / "o")]) == 0
    printed = capsys.readouterr().out

    assert printed.count("sim.") == 4  # the columns' heads
    assert "To book for 2 epochs, by simulation: 4 devices for" in printed
    values = json.loads((tmp_path / "o" / "oracle.json").read_text())
    assert [row["strategy"] for row in values["rows"]] == ["data", "filter"]
    assert all(row["simulated"]["iteration_s"] > 0 for row in values["rows"])
    assert values["booking"]["simulated"]
    assert set(values["simulated_winners"]) == {"4"}


BAD = {
    "beyond the cluster": (["--gpus", "8"], "devices must be at most the 4 of titanx-4, got 8"),
    "counts": (["--gpus", "4..1"], "gpus must rise"),
    "strategy": (["--strategies", "dta"], "did you mean 'data'"),
    "both batches": (["--batch", "8", "--batch-per-gpu", "8"], "got both --batch and --batch-per-gpu"),
    "segments": (["--segments", "7"], "segments must divide the batch of the pipeline, 32, got 7"),
    "gamma": (["--memory-reuse", "-1"], "memory_reuse (gamma) must be a finite number >= 0, got -1.0"),
    "budget": (["--budget-gpu-hours", "-3"], "budget_gpu_hours must be a finite number > 0"),
    "data set": (["--dataset", "16"], "batch must be at most the 16 samples of the data set, got 32"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_code_2(case, capsys, tmp_path):
    words, message = BAD[case]

    assert run_app(app, [*QUESTION, "--gpus", "4", *words, "--out", str(tmp_path / "o")]) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "o").exists()
