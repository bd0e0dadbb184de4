"""``orrery run`` as users meet it: files, exit codes, torchrun, Ctrl-C."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from groundwork.errors import ConfigError
from orrery.cli import app
from orrery.terminal.exit_codes import run_app

pytestmark = [pytest.mark.timeout(200), pytest.mark.usefixtures("warm_ranks")]
PYTHON = sys.executable
"""The interpreter that signals reach."""
STEPS = "4"
KEYS = {
    "model",
    "strategy",
    "processes",
    "steps",
    "loss_first",
    "loss_last",
    "iteration_s",
    "spread_s",
    "simulated_s",
    "cluster",
    "samples_per_s",
    "samples_are",
    "peak_memory_bytes",
    "iterations_s",
    "notes",
}
FILES = ["losses.csv", "measured.npz", "run.json", "timeline.csv"]


def planned(folder, model):
    """A plan of two devices in a file."""
    path = folder / f"{model}.json"
    question = [model, "--cluster", "lab-4:nodes=2", "--batch", "16", "--strategy", "data", "--out", str(path)]
    assert run_app(app, ["plan", *question]) == 0
    return str(path)


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    return planned(tmp_path_factory.mktemp("plan"), "lenet5")


def read(folder):
    """Losses and timeline of a run."""
    with (folder / "losses.csv").open() as losses, (folder / "timeline.csv").open() as timeline:
        return list(csv.DictReader(losses)), list(csv.DictReader(timeline))


def names_in(trace):
    """Names of the tasks in a trace."""
    events = json.loads(Path(trace).read_text())["traceEvents"]
    return {event["name"] for event in events if event["ph"] == "X" and event["cat"] != "latency"}


def check(answer, folder):
    """The answer and the files say the same."""
    assert answer.keys() == KEYS
    assert (answer["processes"], answer["steps"]) == (2, int(STEPS))
    losses, timeline = read(folder)
    assert [row["step"] for row in losses] == ["0", "1", "2", "3"]
    assert [float(losses[i]["loss"]) for i in (0, -1)] == [answer["loss_first"], answer["loss_last"]]
    assert {row["device"] for row in timeline} == {"0", "1", "-1"}
    assert {row["origin"] for row in timeline} == {"measured"}
    kept = json.loads((folder / "run.json").read_text())
    assert {key: kept[key] for key in KEYS} == answer
    assert kept["options"]["seed"] == 0
    return losses


@pytest.mark.parametrize("model", ["gpt2:layers=2,hidden=64,words=53,sequence=8"])
def test_replicas_that_divide_what_they_hold_train_alike(model, tmp_path, capsys):
    """The same losses as of whole replicas; gathers and sums are measured, and joined with those that are simulated."""
    losses = {}
    for strategy in ("data", "zero=1", "fsdp"):
        plan, folder = str(tmp_path / f"{strategy}.json"), tmp_path / strategy
        cluster = ["--cluster", "lab-4:nodes=2", "--batch", "4"]
        assert run_app(app, ["plan", model, *cluster, "--strategy", strategy, "--dtype", "float64", "--out", plan]) == 0
        capsys.readouterr()
        traces = [str(tmp_path / f"{strategy}-{side}.trace") for side in ("measured", "simulated")]
        options = ["--steps", STEPS, "--device", "cpu", "--threads", "1", "--out", str(folder), "--trace", traces[0]]
        assert run_app(app, ["run", plan, *options, "--json"]) == 0
        answer, (rows, timeline) = json.loads(capsys.readouterr().out), read(folder)
        losses[strategy] = [float(row["loss"]) for row in rows]
        assert answer["loss_last"] == losses[strategy][-1]
        assert run_app(app, ["simulate", plan, "--trace", traces[1]]) == 0
        capsys.readouterr()
        assert names_in(traces[0]) == names_in(traces[1]) == {row["name"] for row in timeline}
        gathers = [row for row in timeline if row["kind"] == "gather"]
        assert bool(gathers) == (strategy != "data")
    assert losses["zero=1"] == pytest.approx(losses["data"], rel=1e-9)
    assert losses["fsdp"] == pytest.approx(losses["data"], rel=1e-9)


def test_local_ranks_and_torchrun_train_alike(plan_file, tmp_path, capsys):
    """One JSON value either way, the same files, and the same losses to the last bit; a trace where asked for."""
    here, there, trace = tmp_path / "here", tmp_path / "there", tmp_path / "trace.json"
    words = ["run", plan_file, "--steps", STEPS, "--device", "cpu", "--threads", "1", "--json"]

    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    under = subprocess.Popen(
        [*torchrun, "-m", "orrery", *words, "--out", str(there)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert run_app(app, [*words, "--processes", "2", "--out", str(here), "--trace", str(trace)]) == 0
    printed, _ = under.communicate()

    assert under.returncode == 0
    assert check(json.loads(capsys.readouterr().out), here) == check(json.loads(printed), there)
    assert sorted(os.listdir(there)) == sorted(os.listdir(here)) == sorted([*FILES, "log"])
    assert {"X", "M"} <= {event["ph"] for event in json.loads(trace.read_text())["traceEvents"]}


@pytest.mark.parametrize(("model", "samples_are"), [("lenet5", "images"), ("conv1d", "samples")])
def test_people_get_a_table(tmp_path, capsys, model, samples_are):
    """Without --processes as many ranks as the plan has devices; the simulated time stands beside the measured."""
    words = ["--steps", "3", "--stand-in-compute", "--device", "cpu"]
    assert run_app(app, ["run", planned(tmp_path, model), *words]) == 0

    printed = capsys.readouterr().out
    for words in ("iteration (", "simulated (", f" {samples_are}/s ", "peak memory by rank", "MiB; "):
        assert words in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--processes", "1"], "processes must be at least the plan's 2 devices, got 1"),
        (["--learning-rate", "nan"], "optimizer.learning_rate must be finite and > 0, got nan"),
        (["--stall-timeout", "-1"], "stall_s must be finite and > 0 s, got -1.0"),
        (["--resume"], "checkpoint must name a folder where resume or checkpoint_every is given, got none"),
        (["--steps", "0"], "steps must be >= 1, got 0"),
        (["--out", "/proc/none"], "output path must be writable"),
        (["--interface", "lo"], "interface must be left out where the ranks are started here, which use loopback"),
        (["--secret-file", "s"], "secret_file must be left out where the ranks are started here"),
        (["--no-secret"], "no_secret must be left out where the ranks are started here"),
    ],
)
def test_bad_input_is_one_line(plan_file, capsys, words, message):
    assert run_app(app, ["run", plan_file, *words]) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("orrery: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_all_files_of_a_run_take_their_places_or_none(plan_file, tmp_path, capsys, monkeypatch):
    """An error after the run, which is left out here, leaves what was measured nowhere."""

    def failing(*_):
        raise ConfigError("nothing to report")

    measured = SimpleNamespace(write=lambda path: path.write_bytes(b"measured"))
    monkeypatch.setattr("executor.run.plan_run.launch", lambda *_, **__: measured)
    monkeypatch.setattr("orrery.commands.run_command._values", failing)

    assert run_app(app, ["run", plan_file, "--device", "cpu", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "orrery: nothing to report\n"
    assert not (tmp_path / "out").exists()


def test_ranks_on_several_machines_need_a_secret(plan_file, capsys, monkeypatch):
    """Before anything listens."""
    names = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "192.0.2.7", "MASTER_PORT": "29500"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)

    assert run_app(app, ["run", plan_file, "--device", "cpu"]) == 2

    error = capsys.readouterr().err
    assert error.startswith("orrery: secret_file must name a file that every machine of the run has (--secret-file or")
    assert error.count("\n") == 1


def marked(mark):
    """Processes with a word in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_sigterm_ends_all_and_keeps_the_checkpoint(plan_file, tmp_path, capsys):
    """Exit code 143, as shells say it, one line, no process and no half-written file; the run can go on."""
    checkpoint, out, mark = tmp_path / "checkpoint", tmp_path / "out", f"orrery-{tmp_path}"
    words = ["run", plan_file, "--device", "cpu", "--checkpoint", str(checkpoint), "--checkpoint-every", "1"]
    process = subprocess.Popen(
        [PYTHON, "-m", "orrery", *words, "--steps", "1000000", "--out", str(out)],
        env={**os.environ, "ORRERY_TEST_RUN": mark},
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline_s = time.monotonic() + 100
    while not (checkpoint / "latest").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=20)

    assert process.returncode == 143
    assert error == "orrery: terminated\n"
    assert marked(mark) == []
    assert not out.exists() or sorted(os.listdir(out)) == ["log"]
    done = int((checkpoint / "latest").read_text().split()[0].split("-")[1])
    assert done >= 1
    assert run_app(app, [*words, "--resume", "--steps", str(done + 2), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["iterations_s"]) >= 1
    assert run_app(app, [*words, "--resume", "--steps", str(done + 2)]) == 2
    assert f"steps must be more than the {done + 2} that the checkpoint has done" in capsys.readouterr().err
