"""Runs of a plan by real processes: what comes back, and that it does so again."""

import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from ranks import Ranks, options, train

from executor.checks.program_check import check_program
from executor.measurement.measured_run import Measurement
from executor.run.plan_run import LEAST_STALL_S, _label, default_stall_s, program_of, run_plan
from executor.runtime.devices import device_of
from executor.runtime.run_options import RunOptions
from executor.supervision.status_board import RankState, reporter
from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.conditions import Conditions
from planner.graph.type_roles import DataTypes
from planner.lowering.program import KINDS
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import save_plan
from planner.simulation.program_replay import replay

pytestmark = [pytest.mark.timeout(200), pytest.mark.usefixtures("warm_ranks")]
PYTHON = sys.executable
"""The interpreter without anything imported."""
CLUSTER = "lab-4:nodes=2"
RANKS, STEPS = 2, 5


def write_plan(path, *, strategy="data", **changes):
    """A plan of LeNet-5 for two hosts."""
    plan = make_plan(load_model("lenet5", batch=16), load_cluster(CLUSTER), strategy=strategy)
    request = replace(plan.request, **{"cluster": CLUSTER, **changes})
    save_plan(replace(plan, request=request), path)
    return path


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    return write_plan(tmp_path_factory.mktemp("plan") / "plan.json")


@pytest.fixture(scope="module")
def runs(plan_file, tmp_path_factory):
    """Runs by name, side by side."""
    base = {"plan": str(plan_file), "steps": STEPS, "device": "cpu", "data": "generated:32", "seed": 3}
    cases = {
        "first": {"out": str(tmp_path_factory.mktemp("first") / "new")},
        "again": {},
        "waits": {"stand_in": True},
    }
    reports = {name: [] for name in cases}

    def start(name):
        return run_plan(RunOptions(**base, **cases[name]), progress=lambda *row: reports[name].append(row))

    with ThreadPoolExecutor() as pool:
        futures = {name: pool.submit(start, name) for name in cases}
    return SimpleNamespace(
        **{name: future.result() for name, future in futures.items()}, reports=reports, out=cases["first"]["out"]
    )


def test_every_task_is_measured(runs):
    """Times of each task of each iteration, the bytes of each message, and the memory of each rank."""
    measured, program = runs.first.measurement, runs.first.program

    assert measured.start_s.shape == (STEPS, program.size)
    assert (measured.end_s >= measured.start_s).all()
    transfers = program.kind == KINDS.index("transfer")
    assert (measured.sent_bytes[:, transfers] == program.size_bytes[transfers]).all()
    assert measured.peak_memory_bytes.shape == (RANKS,)
    assert (measured.peak_memory_bytes > 50e6).all()
    assert runs.first.samples_per_s == pytest.approx(16 / measured.iteration_s)


def test_training_learns(runs):
    """Ten classes drawn by chance cost ln 10; 32 samples that come again and again are soon known better."""
    losses = runs.first.measurement.loss
    assert losses[0] == pytest.approx(math.log(10), rel=0.5)
    assert losses[-1] < losses[0]


def test_two_runs_give_the_same_losses_to_the_last_bit(runs):
    np.testing.assert_array_equal(runs.first.measurement.loss, runs.again.measurement.loss)


def test_what_stands_in_for_arithmetic_takes_its_time(runs):
    """Each task lasts as long as the program says; nothing is learned.  No longer than that: see ``test_recorder``."""
    measured, program = runs.waits.measurement, runs.waits.program
    compute = program.is_compute
    lasted_s = measured.end_s[:, compute] - measured.start_s[:, compute]
    assert (lasted_s >= program.work_s[compute] - 1e-6).all()
    assert not measured.loss.any()


def test_the_measured_timeline_has_the_form_of_the_simulated_one(runs, tmp_path):
    """Same columns and tasks; only times, what they tell, the iteration and the origin differ."""
    ran = runs.first
    measured, simulated = ran.measurement.timeline(ran.program), ran.replayed.timeline()
    differing = ["iteration", "start_s", "end_s", "origin", "waited_for", "ready_s", "latency_s"]

    assert list(measured.columns) == list(simulated.columns)
    assert measured.drop(columns=differing).equals(simulated.drop(columns=differing))
    assert set(measured["origin"]) == {"measured"}
    assert measured["start_s"].min() == 0

    ran.measurement.write_trace(ran.program, tmp_path / "measured.json")
    ran.replayed.write_trace(tmp_path / "simulated.json")
    named = [
        {
            (event["name"], names[event["pid"]])
            for events in [json.loads((tmp_path / name).read_text())["traceEvents"]]
            for names in [{e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}]
            for event in events
            if event["ph"] == "X" and event["cat"] != "latency"
        }
        for name in ("measured.json", "simulated.json")
    ]
    assert named[0] == named[1]
    assert len(named[0]) == ran.program.size


def test_progress_is_reported(runs):
    """From the start to the last step, with loss and images a second in between."""
    rows = runs.reports["first"]
    assert rows[0] == ("starting", 0, STEPS)
    assert {total for _, _, total in rows} == {STEPS}
    done = [row[1] for row in rows]
    assert done == sorted(done)
    assert done[-1] == STEPS
    assert rows[-1][0].startswith(f"loss {runs.first.measurement.loss[-1]:.4g}, ")
    assert rows[-1][0].endswith(" images/s")


def test_progress_sums_the_ranks_losses():
    """Ranks know their shares; while one knows none, the sum is none either."""
    shown = []
    words = SimpleNamespace(graph=SimpleNamespace(samples_are="sequences"))

    def label(rows):
        return _label(rows, words)

    show = reporter(lambda *row: shown.append(row), label, 9)

    def row(step, loss):
        return SimpleNamespace(step=step, loss=loss, samples_per_s=100.0 * step, state=RankState.COMPUTING)

    show([row(-1, math.nan), row(0, math.nan)])
    show([row(1, 0.5), row(0, math.nan)])
    show([row(2, 0.25), row(1, 0.5)])
    assert shown == [("starting", 0, 9), ("starting", 0, 9), ("loss 0.75, 100 sequences/s", 1, 9)]
    assert reporter(None, label, 9) is None


def test_files_of_a_run(runs):
    """The measurement is left in the folder that was asked for."""
    assert sorted(os.listdir(runs.out)) == ["log", "measured.npz"]


def test_the_time_allowed_for_silence(plan_file):
    """20 s, and five times the longest task where the cluster is so slow that this is more."""
    from planner.plan.plan_file import load_plan

    plan = load_plan(plan_file)
    assert default_stall_s(program_of(plan)) == LEAST_STALL_S
    slow = replace(plan, request=replace(plan.request, cluster="lab-4:nodes=2,host_gbit_per_s=0.01"))
    longest_s = 5 * max(replay(program_of(slow), iterations=1).timeline().eval("end_s - start_s"))
    assert default_stall_s(program_of(slow)) == pytest.approx(max(20.0, longest_s), rel=0.2)


def test_float32_is_run_in_float32(runs):
    """PyTorch by itself rounds the operands of convolutions to TF32 where the GPU can."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    device_of("cpu", 0)
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    with pytest.raises(ConfigError, match=r"dtype must be one of .*, float16 to be run, got 'tf32'"):
        check_program(replace(runs.first.program, conditions=Conditions(types=DataTypes.of("tf32"))), RANKS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"processes": 0}, "processes must be >= 1, got 0"),
        ({"processes": 1}, "processes must be at least the plan's 2 devices, got 1"),
        ({"stall_s": 0.0}, r"stall_s must be finite and > 0 s, got 0\.0"),
    ],
)
def test_refuses(plan_file, changes, words):
    with pytest.raises(ConfigError, match=words):
        run_plan(RunOptions(plan=str(plan_file)), **{"processes": 2, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 0}, "steps must be >= 1, got 0"),
        ({"threads": -1}, "threads must be >= 0, got -1"),
        ({"threads": 100_000}, "threads must be <= 1024, got 100000"),
        ({"resume": True}, "checkpoint must name a folder"),
        ({"checkpoint_every": 2}, "checkpoint must name a folder"),
        ({"stand_in": True, "checkpoint": "x"}, "checkpoint must be left out with stand_in"),
    ],
)
def test_options_that_contradict_themselves(changes, words):
    with pytest.raises(ConfigError, match=words):
        RunOptions(plan="", **changes)


@pytest.mark.parametrize("strategy", ["data", "spatial"])
def test_overlap_changes_no_bit(tmp_path, strategy):
    """With and without, and again with: the same losses and parameters to the last bit."""
    from planner.plan.plan_file import load_plan

    program = program_of(load_plan(write_plan(tmp_path / "plan.json", strategy=strategy)))
    pool = Ranks(RANKS)
    try:
        runs = [pool.run(train, program, options(overlap=overlap, seed=7), True) for overlap in (True, False, True)]
    finally:
        pool.close()
    for other in runs[1:]:
        for (losses, _, slices), (other_losses, _, other_slices) in zip(runs[0], other, strict=True):
            assert losses == other_losses
            for key, (box, values) in slices.items():
                assert other_slices[key][0] == box
                assert torch.equal(torch.from_numpy(values), torch.from_numpy(other_slices[key][1]))


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("executor.run.plan_run", ["torch", "pandas"]),
        ("executor.run.rank_entry", ["pandas", "numba", "scipy", "pydantic"]),
    ],
)
def test_start_loads_nothing_that_it_does_not_need(module, heavy):
    """Each would add up to a second to the start: torch and tables to the parent, the planner to every rank."""
    script = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    ended = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_iterations_after_a_checkpoint_do_not_count():
    """What counts starts after the warm-up and not right after a pause; the last counts where nothing else does."""
    ends = np.array([[1.0], [2.0], [3.0], [14.0], [15.0]])
    fields = {"sent_bytes": ends, "loss": np.zeros(9), "peak_memory_bytes": np.zeros(1)}
    paused = np.array([False, False, False, True, False])
    found = Measurement(start_s=ends - 0.5, end_s=ends, paused=paused, **fields)
    np.testing.assert_allclose(found.iterations_s, [1.0, 1.0])
    assert found.shown in (2, 4)
    only = Measurement(start_s=ends[:1] - 0.5, end_s=ends[:1], paused=paused[:1], **fields)
    np.testing.assert_allclose(only.iterations_s, [0.5])
