"""Jobs of the workbench over HTTP: rows as they arrive, changes, cancellation, and processes that die."""

import sys
import time

import psutil
import pytest
from workbench_server import SMALL, asked, compared, said, served

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.compare_strategies import compare
from planner.plan.lowered_plan import cost_model_of, lower_plan
from planner.plan.make_plan import make_plan, request_for
from planner.simulation.program_replay import replay
from reports.tables.comparison_summary import comparison_columns

LONG = {"model": "inception-v3", "cluster": "fdr-32x3", "batch": 768, "strategies": ["data", "layerwise"]}
SLOW_SLOT = {**SMALL, "edits": {"link.slot.bandwidth_factor": "0.25", "device.node0/gpu0.speed": "0.5"}}


@pytest.fixture(scope="module")
def server_python():
    """The real interpreter, whose processes have it as their ancestor."""
    return sys.executable


def changed(edits):
    """Specification of the small cluster with changes."""
    return "titanx-4:" + ",".join(f"{name}={value}" for name, value in edits.items())


def test_rows_arrive_one_after_the_other_and_are_those_of_compare(server):
    _, events = compared(server.client)
    rows = [table["strategies"] for table in events["table"]]
    assert rows == [["data"], ["data", "owt"], ["data", "owt"]]
    assert events["progress"][0] == ["simulating data", 0, 3]
    expected = compare(load_model("lenet5", batch=64), load_cluster("titanx-4"), ["data", "owt"])
    numbers = events["table"][-1]["numbers"]
    assert numbers["winner"] == expected.winner
    for row, result in zip(numbers["strategies"], expected.strategies, strict=True):
        assert {key: row[key] for key in ("name", "simulated_s", "ladder_s", "moved_bytes")} == {
            "name": result.name,
            "simulated_s": result.simulated_s,
            "ladder_s": result.ladder_s,
            "moved_bytes": result.moved_bytes,
        }


def test_a_change_gives_the_numbers_of_a_replayed_plan(server):
    """The strategies stay; their times are those of ``orrery simulate`` on the changed cluster."""
    compared(server.client)
    _, events = compared(server.client, SLOW_SLOT, kind="reprice", shown="owt")
    assert {name for values in events["ladder"] for name in values["names"]} == {"data", "owt"}
    assert [values["name"] for values in events["timeline"]] == ["owt"]
    assert events["timeline"][0]["timeline"]["count"] > 0
    graph, today, now = (
        load_model("lenet5", batch=64),
        load_cluster("titanx-4"),
        load_cluster(changed(SLOW_SLOT["edits"])),
    )
    for row in events["table"][-1]["numbers"]["strategies"]:
        plan = make_plan(graph, today, strategy=row["name"])
        assert row["simulated_s"] == replay(lower_plan(plan, graph, now)).iteration_s
        assert row["simulated_s"] > plan.simulated_s


def test_changes_taken_back_give_what_was_compared(server):
    _, first = compared(server.client)
    compared(server.client, SLOW_SLOT, kind="reprice", shown="data")
    _, back = compared(server.client, kind="reprice", shown="data")
    assert back["table"][-1] == first["table"][-1]
    assert back["table"][-1]["searched"] is True


def test_a_price_is_a_column_of_what_was_compared_and_of_what_changed(server):
    """Nothing is chosen or replayed anew for it, and the command has it; the numbers are those of ``compare``."""
    compared(server.client)
    priced = {**SMALL, "price": "2.5"}
    _, events = compared(server.client, priced, kind="reprice", shown="data")
    assert list(events) == ["table", "done"]
    expected = compare(load_model("lenet5", batch=64), load_cluster("titanx-4"), ["data", "owt"]).priced(2.5)
    column = comparison_columns(expected)[3]
    assert column.title == "money per million images"
    (table,) = events["table"]
    assert table["columns"][3]["texts"] == list(column.texts)
    assert [row["money_per_million_samples"] for row in table["numbers"]["strategies"]] == list(column.values)
    _, slow = compared(server.client, {**priced, **SLOW_SLOT}, kind="reprice", shown="data")
    for row in slow["table"][-1]["numbers"]["strategies"]:
        assert row["money_per_million_samples"] == pytest.approx(2.5 * 4 / 3600 * row["expected_s"] / 64 * 1e6)
    answer = asked(server.client, "compare", priced, bench="another-page").json()
    assert answer["command"].endswith("--price 2.5")


def test_a_timeline_follows_the_change(server):
    compared(server.client)
    ends = []
    for subject in (SMALL, SLOW_SLOT):
        compared(server.client, subject, kind="reprice", shown="data")
        _, events = compared(server.client, subject, kind="timeline", shown="owt")
        ends.append(events["timeline"][0]["timeline"]["columns"]["duration"])
    assert ends[0] != ends[1]


def test_events_can_be_read_again_from_any_on(server):
    """A browser that lost its connection names the last event that it has."""
    job, _ = compared(server.client)
    whole = list(said(server.client, job))
    assert [number for number, *_ in whole] == list(range(len(whole)))
    assert list(said(server.client, job, after=1)) == whole[2:]


@pytest.mark.parametrize(
    ("kind", "subject", "message"),
    [
        ("reprice", {**SMALL, "edits": {"device.node0/gpu3.failed": "1"}}, "adds or removes devices; press Compare"),
        ("reprice", {**SMALL, "edits": {"link.none.bandwidth_factor": "2"}}, "must name a class of links"),
        ("timeline", SMALL, "strategy must be one that was compared"),
    ],
)
def test_what_a_bench_cannot_do_is_said_and_it_goes_on(server, kind, subject, message):
    compared(server.client)
    _, events = compared(server.client, subject, kind=kind, shown="hybrid")
    assert message in events["failed"][0]
    _, events = compared(server.client, SLOW_SLOT, kind="reprice")
    assert "done" in events


def test_a_result_depends_on_its_request_alone(server):
    """A change and a timeline of a page that has compared nothing are those of the page that has; strategies too."""
    first = {"link.slot.bandwidth_factor": "0.01"}
    compared(server.client, {**SMALL, "edits": first})
    _, again = compared(server.client, SLOW_SLOT, kind="reprice", bench="another-page", compared=first)
    _, shown = compared(server.client, SLOW_SLOT, kind="timeline", bench="another-page", compared=first, shown="owt")
    expected = compare(load_model("lenet5", batch=64), load_cluster(changed(first)), ["data", "owt"])
    now = load_cluster(changed(SLOW_SLOT["edits"]))
    graph = load_model("lenet5", batch=64)
    model = cost_model_of(request_for(graph, now, strategy="data"), graph, now)
    for row, result in zip(again["table"][-1]["numbers"]["strategies"], expected.strategies, strict=True):
        program = result.planned.lowered(model)
        assert (row["name"], row["simulated_s"]) == (result.name, replay(program).iteration_s)
    known = compared(server.client, SLOW_SLOT, kind="timeline", bench="third-page", compared=first, shown="owt")[1]
    assert known == shown
    (other,) = compared(server.client, SMALL, kind="timeline", bench="other-page", shown="owt")[1]["timeline"]
    assert other != shown["timeline"][0]
    assert "edits" in asked(server.client, "reprice", compared={"x": 1}).json()["error"]


def test_jobs_that_are_not_there(server):
    for address in ("api/jobs/unknown/events", "api/jobs/unknown/page"):
        assert "not known" in server.client.get(address).json()["error"]
    assert server.client.delete("api/jobs/unknown").status_code == 400


def test_the_latest_change_wins(server):
    compared(server.client)
    jobs = [asked(server.client, "reprice", SLOW_SLOT, shown="data").json()["job"] for _ in range(5)]
    ends = [list(said(server.client, job))[-1][1] for job in jobs]
    assert ends[-1] == "done"
    assert set(ends[:-1]) <= {"cancelled", "done"}


def test_two_pages_have_results_of_their_own(server):
    other = {**SMALL, "batch": 128}
    jobs = [
        asked(server.client, "compare", each, bench=f"page-number-{i}").json()["job"]
        for i, each in enumerate((SMALL, other))
    ]
    batches = [
        [v for _, kind, v in said(server.client, job) if kind == "table"][-1]["numbers"]["batch"] for job in jobs
    ]
    assert batches == [64, 128]


def descendants(server):
    return psutil.Process(server.process.pid).children(recursive=True)


def waits_for(condition, seconds=20.0):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.05)
    assert condition()


def benches(server):
    """Processes that compare, or are ready to: children of the one that all are forked from."""
    return [each for child in psutil.Process(server.process.pid).children() for each in child.children()]


def test_a_cancelled_comparison_ends_its_process(server):
    """And no other; another is compared after."""
    job, working = asked(server.client, "compare", LONG, bench="cancelled-bench").json()["job"], []
    for _, kind, _ in said(server.client, job):
        if kind == "progress" and not working:
            working = benches(server)
            server.client.delete(f"api/jobs/{job}")
    assert kind == "cancelled"
    waits_for(lambda: len(set(working) - set(benches(server))) == 1)
    compared(server.client, bench="bench-of-tests")
    assert len(set(working) - set(benches(server))) == 1


def test_a_killed_process_is_said_and_the_server_lives(server):
    """As where the system kills one for want of memory."""
    job = asked(server.client, "compare", LONG, bench="killed-bench").json()["job"]
    kinds, killed = [], []
    for _, kind, values in said(server.client, job):
        if kind == "progress" and not killed:
            for bench in benches(server):
                bench.kill()
                killed.append(bench)
        kinds.append((kind, values))
    psutil.wait_procs(killed, timeout=20)
    assert kinds[-1][0] == "failed"
    assert "killed by signal 9" in kinds[-1][1]
    _, events = compared(server.client, bench="killed-bench")
    assert "done" in events


def test_a_killed_server_leaves_no_process_and_whole_scenarios(tmp_path, warm_programs):
    """Killed in mid-computation; the next server has what was kept."""
    with served(tmp_path / "folder", tmp_path / "cwd") as server:
        job, _ = compared(server.client)
        server.client.put("api/scenarios", json={"name": "today", "job": job}).raise_for_status()
        long = asked(server.client, "compare", LONG).json()["job"]
        next(said(server.client, long))
        processes = descendants(server)
        server.process.kill()
        server.process.wait()
        assert len(processes) >= 2
        waits_for(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in processes))
    with served(tmp_path / "folder", tmp_path / "cwd", python=str(warm_programs / "python")) as server:
        (kept,) = server.client.get("api/choices").json()["scenarios"]
        assert (kept["name"], kept["subject"]["model"]) == ("today", "lenet5")
