"""``orrery replay``: task graphs of any origin, and those of our own plans."""

import json

import pandas as pd
import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app

# Two transfers share a link; the kernel waits for one of them.  Half each until the short one ends at 2.
GRAPH = {
    "version": 2,
    "resources": [{"name": "link", "capacity": 1.0, "sharing": "fair"}],
    "tasks": {
        "id": [30, 10, 20],
        "name": ["kernel", "short", "long"],
        "after": [[10], [], []],
        "work": [0.5, 1, 2.0],
        "uses": [[], ["link"], ["link"]],
    },
}
ROWS = ["id,ready_s,start_s,end_s", "30,2.0,2.0,2.5", "10,0.0,0.0,2.0", "20,0.0,0.0,3.0"]


@pytest.fixture
def graph_file(tmp_path):
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(GRAPH))
    return path


@pytest.mark.parametrize("engine", ["auto", "simpy", "compiled"])
def test_times_and_numbers(graph_file, tmp_path, capsys, engine):
    """One JSON value; the rows in the order of the file."""
    out = tmp_path / "new" / "timeline.csv"
    assert run_app(app, ["replay", str(graph_file), "--out", str(out), "--engine", engine, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)

    assert out.read_text().splitlines() == ROWS
    assert set(answer) == {"tasks", "makespan_s", "load_s", "engine_s", "engine"}
    assert (answer["tasks"], answer["makespan_s"]) == (3, 3.0)
    assert answer["engine"] == ("simpy" if engine == "simpy" else "compiled")
    assert answer["load_s"] > 0
    assert answer["engine_s"] > 0


def test_parquet_out_and_table_for_people(graph_file, tmp_path, capsys):
    assert run_app(app, ["replay", str(graph_file), "--out", str(tmp_path / "timeline.parquet")]) == 0

    assert "makespan (" in capsys.readouterr().out
    assert pd.read_parquet(tmp_path / "timeline.parquet")["end_s"].tolist() == [2.5, 2.0, 3.0]


@pytest.mark.parametrize(
    ("form", "options"),
    [("json", []), ("parquet", []), ("parquet", ["--no-overlap"]), ("json", ["--no-overlap", "--no-contention"])],
)
def test_plan_replays_the_same_from_its_file(tmp_path, capsys, form, options):
    """The graph that ``simulate`` writes has the makespan of the replay that it came from, and names its tasks."""
    plan, graph = tmp_path / "plan.json", tmp_path / f"graph.{form}"
    assert run_app(app, ["plan", "lenet5", "--cluster", "titanx-4", "--batch", "64", "--out", str(plan)]) == 0
    assert run_app(app, ["simulate", str(plan), "--iterations", "2", "--graph", str(graph), *options]) == 0
    capsys.readouterr()
    assert run_app(app, ["replay", str(graph), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)

    from orrery.terminal.stored_plan import open_plan
    from planner.simulation.program_replay import replay
    from simulator.formats.graph_file import read_graph

    chosen = {word.removeprefix("--no-"): False for word in options}
    result = replay(open_plan(plan).program, iterations=2, **chosen)
    assert answer["makespan_s"] == result.schedule.makespan_s
    assert answer["tasks"] == result.program_graph.graph.size
    source = read_graph(graph)
    assert source.names[0] == f"{result.program.name(0)}, iteration 0"
    assert ("barrier" in source.kinds) == ("--no-overlap" in options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 1}, "version must be 2"),
        ({"tasks": {"id": [1], "work": [1], "after": [[1]]}}, "got the cycle 1 -> 1"),
        (
            {"tasks": {"id": [1], "name": ["send"], "work": [1], "rate_limit": [0]}},
            "rate_limit of task 1 (send) must be > 0",
        ),
    ],
)
def test_bad_graph_is_one_line(graph_file, tmp_path, capsys, change, message):
    """Code 2, and no output begun."""
    graph_file.write_text(json.dumps({**GRAPH, **change}))
    assert run_app(app, ["replay", str(graph_file), "--out", str(tmp_path / "timeline.csv"), "--json"]) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert message in printed.err
    assert list(tmp_path.iterdir()) == [graph_file]


def test_times_of_a_late_clock_count_from_its_earliest_start(tmp_path, capsys):
    """In seconds since 1970 a double does not tell microseconds apart."""
    tasks = {"id": [0], "start_s": [1.7e9], "latency_s": [1e-6], "work": [2e-6]}
    (tmp_path / "late.json").write_text(json.dumps({"version": 2, "resources": [], "tasks": tasks}))
    words = ["replay", str(tmp_path / "late.json"), "--out", str(tmp_path / "late.csv"), "--json"]
    assert run_app(app, words) == 0

    answer = json.loads(capsys.readouterr().out)
    assert (answer["origin_s"], answer["makespan_s"]) == (1.7e9, pytest.approx(3e-6, rel=1e-9))
    assert pd.read_csv(tmp_path / "late.csv")["start_s"].tolist() == pytest.approx([1e-6])


def test_missing_graph_is_named(tmp_path, capsys):
    assert run_app(app, ["replay", str(tmp_path / "none.json")]) == 2
    assert "none.json cannot be read: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("step", ["simulator.engines.engine.simulate", "simulator.formats.graph_file.write_schedule"])
def test_interruption_leaves_nothing(graph_file, tmp_path, capsys, monkeypatch, step):
    """Ctrl-C while the engine runs, or while the rows are written, keeps what was there."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    (tmp_path / "timeline.csv").write_text("old")
    monkeypatch.setattr(step, interrupted)

    assert run_app(app, ["replay", str(graph_file), "--out", str(tmp_path / "timeline.csv")]) == 130
    assert (tmp_path / "timeline.csv").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"graph.json", "timeline.csv"}
