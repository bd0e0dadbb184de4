"""Inputs that once ended a command in another way than with one line: each is refused, and nothing else is touched."""

import os
from pathlib import Path

import numpy as np
import pytest

from hwprofiles.catalogue.cluster_catalogue import cluster_path
from hwprofiles.compute.profile_file import FOLDER
from orrery.cli import app
from orrery.terminal.exit_codes import run_app

PLAN = "plan lenet5 --cluster titanx-4 --batch 8 --strategy data --out"
WITH = "plan lenet5 --cluster mine.yaml --batch 8 --strategy data --out p.json"
ORACLE = "oracle lenet5 --cluster titanx-4 --dataset 1024 --gpus"
CLUSTER = cluster_path("titanx-4").read_text()
PROFILE = (FOLDER / "titanx.yaml").read_text()


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Run a command that must be refused; returns its line."""
    monkeypatch.chdir(tmp_path)

    def run(words):
        before = sorted(tmp_path.rglob("*"))
        assert run_app(app, words if isinstance(words, list) else words.split()) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("orrery: ")
        assert printed.err.count("\n") == 1
        assert not any(ord(char) < 32 for char in printed.err[:-1])
        assert sorted(tmp_path.rglob("*")) == before
        return printed.err

    return run


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("count: 4, profile", "count: 1000000, profile", "must be at most 500,000"),
        ("count: nodes", "count: 1000000", "must be at most 500,000"),
        ("count: 4, profile", "count: 100000, profile", "no route leads from device 'node0/gpu0' to 'node0/gpu4'"),
        ("titanx-nervana", r'"a\0b"', "control characters"),
        ("bandwidth_gbyte_per_s: 14", "bandwidth_gbyte_per_s: 1.0e-320", "must be greater than or equal to"),
        ("latency_us: 1.0}", "latency_us: 1.0e+308}", "must be less than or equal to"),
        ("version: 1", f"version: {'9' * 5000}", "at most 100 digits"),
        ("name: titanx-4", 'name: "\\e[2Jtitanx"', "control characters"),
        ("version: 1", f"version: {'[' * 100_000}", "nested at most 64 levels deep"),
    ],
)
def test_clusters(refused, old, new, said):
    assert old in CLUSTER
    Path("mine.yaml").write_text(CLUSTER.replace(old, new))
    assert said in refused(WITH)


@pytest.mark.parametrize(
    ("key", "value"), [("peak_tflop_per_s", "1.0e-320"), ("peak_tflop_per_s", "1.0e+308"), ("memory_gib", ".nan")]
)
def test_profiles(refused, key, value):
    lines = [f"{key}: {value}" if line.startswith(f"{key}:") else line for line in PROFILE.splitlines()]
    assert lines != PROFILE.splitlines()
    Path("profile.yaml").write_text("\n".join(lines))
    Path("mine.yaml").write_text(CLUSTER.replace("titanx-nervana", "profile.yaml"))
    assert f"compute profile profile.yaml: {key}: must be" in refused(WITH)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"{ORACLE} {'9' * 5000}", "gpus must look like"),
        (f"{ORACLE} 1..{'9' * 5000}", "gpus must look like"),
        ("oracle lenet5 --cluster titanx-4 --gpus 4 --dataset " + "9" * 5000, "dataset must be one of"),
        (f"{PLAN} p.json --strategy data={'9' * 60}", "data must be a whole number >= 1"),
        (f"{PLAN} p.json --batch {'9' * 5000}", "must be a whole number >= 1"),
        (f"{PLAN} loop", "output path must be writable, got 'loop'"),
        (f"{PLAN} pipe", "No such device or address"),
        ("index pages --out loop", "output path must be writable, got 'loop'"),
        (f"{PLAN} a\x1b[2J.json", "output path: texts must hold no control characters"),
        ("streams lenet5 --batch 8 --alpha 99999999999999999999999", "alpha must be at most 1,000,000,000"),
        ("whatif lenet5 --cluster titanx-4 --batch 8 --set link.slot.bandwidth_factor=1e-320", "a number from 1e-09"),
        ("whatif lenet5 --cluster titanx-4 --batch 8 --set link.slot.latency_factor=1e308", "a number from 0 to 1e+09"),
        ("simulate /dev/zero", "plan file /dev/zero must be a regular file, got a device"),
        ("simulate pipe", "plan file pipe must be a regular file, got a pipe"),
        ("simulate loop", "plan file loop cannot be read: Too many levels of symbolic links"),
        ("results pipe", "store pipe must be a regular file, got a pipe"),
        ("results pipe --copy new.sqlite", "store pipe must be a regular file, got a pipe"),
        ("sweep none.yaml --store new.sqlite", "none.yaml cannot be read"),
    ],
)
def test_words(refused, words, said):
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")
    Path("pages").mkdir()
    Path("pages/values.json").write_text("{}")
    assert said in refused(words.split(" "))


def measured(tasks, **changed):
    start = np.sort(np.random.default_rng(0).random((3, tasks)), axis=1) + 2.0 * np.arange(3)[:, None]
    arrays = {
        "start_s": start,
        "end_s": start + 0.1,
        "sent_bytes": start,
        "loss": np.ones(3),
        "paused": np.zeros(3, bool),
        "peak_memory_bytes": np.ones(4),
        "notes": np.array(["a note"]),
        "allocated_bytes": np.empty((0, 0)),
    }
    np.savez_compressed(
        "measured.npz", **{name: array for name, array in (arrays | changed).items() if array is not None}
    )


def test_measurements(refused, capsys):
    assert run_app(app, [*PLAN.split(), "p.json"]) == 0
    assert run_app(app, ["simulate", "p.json", "--json"]) == 0
    capsys.readouterr()
    words, tasks = "timeline p.json --measured measured.npz --out t.html", 88
    times = np.zeros((3, tasks))
    for said, changed in {
        "must hold the arrays": {"loss": None},
        "start_s must have 2 dimensions, got <U1": {"start_s": np.full((3, tasks), "x")},
        "start_s must have 2 dimensions, got float64 of ()": {"start_s": np.array(3.0)},
        "must have one shape": {"end_s": times[:, :1]},
        "every iteration must have tasks": {"start_s": times * np.nan, "end_s": times * np.nan},
        "with both a start and an end": {"start_s": times * np.nan},
        "times must be at most 1e+12 s": {"end_s": times + np.inf},
        "no task may end before it starts": {"end_s": times - 1},
        "iterations must take time": {"start_s": times, "end_s": times},
        "paused must have an entry for each iteration": {"paused": np.zeros(2, bool)},
        "control characters": {"notes": np.array(["\x1b[2J"])},
    }.items():
        measured(tasks, **changed)
        assert said in refused(words)
    measured(tasks)
    assert run_app(app, words.split()) == 0


def test_processes_that_do_not_fit_in_memory_are_not_started(refused, capsys):
    assert run_app(app, [*PLAN.split(), "p.json"]) == 0
    capsys.readouterr()
    assert "1,000,000 processes would take about 1.37e+05 GiB" in refused("run p.json --processes 1000000 --steps 1")
    rows = ", ".join(str(8 * count) for count in range(1, 9_000))
    Path("s.yaml").write_text(
        f"version: 1\nname: s\nmodels: [lenet5]\nclusters: [titanx-4]\nbatch: [{rows}]\nstrategies: [data]\n"
    )
    assert "a sweep by 8,999 processes would take" in refused("sweep s.yaml --store s.sqlite --processes 10000")


def test_a_device_is_written_to_and_stays(tmp_path, monkeypatch, capsys, null_device):
    """Root could put a file in its place."""
    monkeypatch.chdir(tmp_path)
    assert run_app(app, [*PLAN.split(), str(null_device)]) == 0
    capsys.readouterr()
    assert null_device.is_char_device()
    assert list(tmp_path.iterdir()) == []
