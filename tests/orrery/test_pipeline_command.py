"""Pipelines on the command line: planned, kept, simulated, analysed, run; and what is refused."""

import csv
import json

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app

QUESTION = ["--cluster", "titanx-4", "--batch", "16", "--strategy", "pipeline"]


def answer(capsys, *words):
    code = run_app(app, [*map(str, words), "--json"])
    printed, said = capsys.readouterr()
    assert code == 0, said
    return json.loads(printed)


def test_a_pipeline_is_planned_simulated_and_analysed(tmp_path, capsys):
    path = tmp_path / "plan.json"
    words = ["--stages", "3", "--micro-batches", "8", "--schedule", "gpipe", "--stage-at", "conv2,fc1"]
    planned = answer(capsys, "plan", "lenet5", *QUESTION, *words, "--out", path)
    assert planned["schedule"] == "gpipe"
    assert planned["micro_batches"] == 8
    assert planned["stages"] == ["conv1", "conv2", "fc1"]
    devices = [row["devices"] for row in planned["configurations"].values()]
    assert devices == sorted(devices)
    assert devices[-1] == [2]

    simulated = answer(capsys, "simulate", path)
    assert simulated["iteration_s"] == planned["simulated_s"]
    answer(capsys, "analyse", path)
    graph = tmp_path / "graph.json"
    answer(capsys, "simulate", path, "--graph", graph)
    answer(capsys, "replay", graph)


def test_a_pipeline_is_compared(tmp_path, capsys):
    words = ["--cluster", "titanx-4", "--batch", "16", "--strategies", "data,pipeline", "--out", str(tmp_path / "page")]
    found = answer(capsys, "compare", "lenet5", *words)
    assert [row["name"] for row in found["strategies"]] == ["data", "pipeline"]


@pytest.mark.timeout(200)
@pytest.mark.usefixtures("warm_ranks")
def test_a_pipeline_is_run(tmp_path, capsys):
    path = tmp_path / "plan.json"
    question = ["--cluster", "lab-4:nodes=2", "--batch", "16", "--strategy", "pipeline", "--micro-batches", "4"]
    answer(capsys, "plan", "lenet5", *question, "--out", path)
    found = answer(
        capsys, "run", path, "--processes", "2", "--steps", "3", "--device", "cpu", "--out", tmp_path / "run"
    )
    assert (found["processes"], found["strategy"]) == (2, "pipeline")
    with (tmp_path / "run" / "timeline.csv").open() as timeline:
        assert {row["sub_batch"] for row in csv.DictReader(timeline)} == {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--stages", "5"], "stages must be at most the 4 devices for 1f1b, got 5"),
        (["--stages", "40"], "stages must be 1 to the"),
        (["--stages", "6", "--schedule", "interleaved"], "stages must be a multiple of the 4 devices"),
        (
            ["--strategy", "data", "--micro-batches", "3"],
            "micro_batches must be >= 1 and divide the batch of 16, got 3",
        ),
        (["--micro-batches", "3"], "micro_batches must be >= 1 and divide the batch of 16, got 3"),
        (["--schedule", "2f2b"], "schedule must be one of gpipe, 1f1b, interleaved"),
        (["--stage-at", "nowhere"], "stage_at must name layers of lenet5, got 'nowhere'"),
        (["--sub-batches", "2"], "sub_batches must be 1 for pipeline, which has micro-batches of its own, got 2"),
        (["--strategy", "data", "--stages", "2"], "stages, schedule and stage_at are for the strategy pipeline"),
    ],
)
def test_bad_pipelines_are_refused_in_one_line(words, reason, tmp_path, capsys):
    path = tmp_path / "plan.json"
    assert run_app(app, ["plan", "lenet5", *QUESTION, *words, "--out", str(path)]) == 2
    printed, said = capsys.readouterr()
    assert not printed
    assert reason in said
    assert said.count("\n") == 1
    assert not path.exists()
