import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from sweep_points import LEAVES, POINTS, breaking, dying, expected, plain

from groundwork.errors import ConfigError, DeviceMemoryError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_request import PlanRequest
from studies.sweep.evaluate_point import evaluate_point
from studies.sweep.point import SweepPoint
from studies.sweep.store import Store
from studies.sweep.sweep_file import Sweep, read_sweep
from studies.sweep.sweep_run import compute_on_dask, run_sweep
from studies.sweep.workers import compute_locally

SWEEP = """
version: 1
name: killed
models: lenet5
clusters: {cluster: p100-4x4, with: {nodes: [1, 2], link.nvlink1.bandwidth_factor: [0.25, 0.5, 1, 2]}}
batch_per_device: [8, 16]
strategies: [data, owt]
"""


def test_a_point_is_what_its_plan_says():

    point = SweepPoint(model="alexnet", cluster="p100-4x4", batch=512, strategy="owt", compress_gradients="float16")
    found = evaluate_point(point).values

    graph = load_model("alexnet", batch=512)
    plan = make_plan(graph, load_cluster("p100-4x4"), strategy="owt", compress_gradients="float16")
    assert found["iteration_s"] == plan.simulated_s
    assert found["likely_low_s"] < found["expected_s"] < found["likely_high_s"]
    assert found["samples_per_s"] == 512 / found["expected_s"]
    shares = [found[name] for name in ("compute_s", "exposed_communication_s", "idle_s")]
    assert sum(shares) == pytest.approx(found["iteration_s"], rel=1e-9)


def test_a_point_has_the_precision_and_the_conditions_that_it_names():
    options = {"dtype": "bfloat16", "interference": False, "spread": False, "framework": "ideal"}
    point = SweepPoint(model="alexnet", cluster="dgx-h100", batch=512, strategy="data", **options)
    graph = load_model("alexnet", batch=512, element_bytes=2)
    plan = make_plan(
        graph,
        load_cluster("dgx-h100"),
        PlanRequest(model="alexnet", cluster="dgx-h100", batch=512, strategy="data", **options),
    )

    assert evaluate_point(point).values["iteration_s"] == plan.simulated_s
    assert evaluate_point(replace(point, dtype="float32")).values["iteration_s"] > plan.simulated_s


def test_what_cannot_be_had_is_refused_and_what_breaks_has_failed():
    refused = evaluate_point(SweepPoint(model="lenet5", cluster="p100-4x4", batch=7, strategy="data"))
    assert (refused.status, refused.values) == ("refused", {})
    assert "multiple of the 16 devices" in refused.error


@pytest.mark.parametrize("strategy", ["data", "layerwise"])
def test_what_does_not_fit_is_refused_without_a_search_for_what_does(strategy, monkeypatch):
    """The advice takes longer than the point itself."""
    monkeypatch.setattr(DeviceMemoryError, "fitting", None)
    refused = evaluate_point(SweepPoint(model="lenet5", cluster="titanx-4", batch=2**22, strategy=strategy))
    assert refused.status == "refused"
    assert re.match(r"plan does not fit on \S+: needs [0-9.]+ GiB, the device has 12.00 GiB", refused.error)


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("warm_workers")
def test_processes_compute_what_one_does():
    found = {point: plain(result) for point, result in compute_locally(POINTS, processes=2)}
    assert found == {point: expected(point) for point in POINTS}


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("warm_workers")
def test_points_whose_process_dies_fail_alone():
    found = dict(compute_locally(POINTS, processes=2, evaluate_point=dying))
    died = {point for point in POINTS if point.batch == 96 and point.strategy == "owt"}
    assert len(died) == 1
    assert {point for point, result in found.items() if result.status == "failed"} == died
    assert all(plain(found[point]) == expected(point) for point in POINTS if point not in died)


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("warm_workers")
def test_an_error_in_the_workers_is_not_swallowed():
    with pytest.raises(ValueError, match="never returned"):
        list(compute_locally(POINTS[:2], processes=1, evaluate_point=breaking))


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("warm_workers")
def test_only_what_is_missing_is_computed(tmp_path):
    sweep = Sweep(name="half", points=tuple(POINTS[:6]))
    with Store.writing(tmp_path / "r.sqlite") as store:
        first = run_sweep(Sweep(name="half", points=tuple(POINTS[:3])), store, processes=1)
        second = run_sweep(sweep, store, processes=1)
        third = run_sweep(sweep, store, processes=1)
    assert [row.computed for row in (first, second, third)] == [3, 3, 0]
    assert [row.stored for row in (first, second, third)] == [0, 3, 6]


def rows_of(path):
    with Store.reading(path) as store:
        return {point: plain(result) for point, result in store.rows()}


def stored_in(path):
    """How many results a store has, which may just be coming into being."""
    try:
        return len(rows_of(path))
    except ConfigError as error:
        if re.search("does not exist|has no results yet", str(error)):
            return 0
        raise


@pytest.mark.timeout(300)
def test_a_sweep_killed_and_stopped_ends_as_an_undisturbed_one(tmp_path, warm_programs):
    """And says nothing when it is killed: it leaves nothing that the system would have to take away."""
    ends = [(signal.SIGKILL, -9, b"")]
    ends += [(signal.SIGTERM, 143, b"orrery: terminated\n"), (signal.SIGINT, 130, b"orrery: interrupted\n")]
    file, store, leaves = tmp_path / "sweep.yaml", tmp_path / "killed.sqlite", tmp_path / "leaves"
    file.write_text(SWEEP)
    leaves.mkdir()
    words = [str(file), "--processes", "2", "--json", "--store", str(store)]
    stepped = [warm_programs / "python", "-c", "from sweep_points import sweep_with_leave as run; run()", *words]
    environment = {**os.environ, LEAVES: str(leaves), "PYTHONPATH": os.pathsep.join(sys.path)}
    chance, seen = random.Random(1), 0
    for number, code, said in ends:
        process = subprocess.Popen(
            stepped, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0, env=environment
        )
        enough = seen + chance.randint(2, 6)
        for leave in range(seen, enough + 2):  # the last two may be under way
            (leaves / str(leave)).touch()
        while seen < enough and process.poll() is None:
            time.sleep(0.02)
            seen = stored_in(store)
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)  # as Ctrl-C does
        assert process.communicate()[1] == said
        assert process.returncode == code
        _wait_until_gone(process.pid)
        seen = stored_in(store)
    assert 0 < seen < 32
    last = subprocess.run([warm_programs / "orrery", "sweep", *words], check=True, capture_output=True, text=True)
    assert f'"stored":{seen},"computed":{32 - seen}' in last.stdout
    assert rows_of(store) == {point: plain(evaluate_point(point)) for point in read_sweep(file).points}
    assert len(rows_of(store)) == 32


def _wait_until_gone(group: int) -> None:
    """Workers of a killed sweep end by themselves."""
    while True:  # until the time of the test is over
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)


@pytest.mark.timeout(240)
def test_a_sweep_on_dask_ends_in_one_line_though_all_of_its_group_hang_up(tmp_path):
    """As when a terminal is closed: Python's own tracker outlives it, and does not lose what it tracks."""
    pytest.importorskip("distributed")
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    words = ["sweep", "sweep.yaml", "--store", "new.sqlite", "--dask", "local:2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "orrery", *words],
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        process_group=0,
        env={**os.environ, "ORRERY_PROGRESS": "off"},
    )
    while not stored_in(tmp_path / "new.sqlite") and process.poll() is None:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGHUP)

    assert process.communicate()[1] == b"orrery: hung up\n"


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("warm_workers")
def test_dask_computes_the_same_though_a_worker_is_killed():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        results = compute_on_dask(POINTS, address=cluster.scheduler_address)
        found = dict([next(results), next(results)])
        os.kill(cluster.workers[0].pid, signal.SIGKILL)
        for point, result in results:
            assert point not in found
            found[point] = result
    assert {p: plain(r) for p, r in found.items()} == {point: expected(point) for point in POINTS}


@pytest.mark.parametrize(
    ("address", "rule"), [("local:0", "local:N with N >= 1"), ("tcp://127.0.0.1:9", "cannot be reached")]
)
def test_dask_that_cannot_be_used_is_an_error(address, rule, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("studies.sweep.sweep_run.DASK_WAIT_S", 0.5)
    with pytest.raises(ConfigError, match=rule):
        next(compute_on_dask(POINTS, address=address))
