"""Task graph files: both forms hold what the engines need, to the last bit, and bad ones say what is wrong."""

import json
import sys
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pyarrow
import pytest
from hypothesis import given, settings, strategies as st
from pyarrow import parquet
from task_graphs import task_graph, task_graphs

from groundwork.errors import ConfigError, InfeasiblePlanError
from simulator.engines.engine import simulate
from simulator.formats.graph_file import read_graph, write_graph, write_schedule
from simulator.formats.graph_json import TaskGraphFile
from simulator.graph import memory_need

TIMES = ("ready_s", "start_s", "end_s")
FORMS = ("graph.json", "graph.parquet")
LINK = {"name": "a-to-b", "capacity": 1e9}
TASK = {"id": 7, "work": 1e6, "uses": {"a-to-b": 1.0}}


DEFAULTS = {"name": "", "after": [], "uses": {}, "start_s": 0, "latency_s": 0, "rate_limit": None, "priority": 0}


def columns_of(tasks):
    """The columns of tasks with what each of them says, and the default for what only others say."""
    keys = {key: [task.get(key, DEFAULTS.get(key)) for task in tasks] for task in tasks for key in task}
    if "uses" in keys:
        keys |= {"uses": [[*uses] for uses in keys["uses"]], "weights": [[*uses.values()] for uses in keys["uses"]]}
    return keys


def write(folder, tasks=(TASK,), resources=(LINK,), **changes):
    """A JSON file of tasks, or of columns."""
    path = folder / "graph.json"
    tasks = tasks if isinstance(tasks, dict) else columns_of(tasks)
    path.write_text(json.dumps({"version": 2, "resources": resources, "tasks": tasks, **changes}))
    return path


def write_table(folder, tasks, resources=(LINK,), version=1):
    """A Parquet file, as pandas alone writes it."""
    table = pd.DataFrame(tasks)
    table.attrs = {"version": version, "resources": list(resources)}
    table.to_parquet(folder / "graph.parquet")
    return folder / "graph.parquet"


def replayed(path, engine="auto"):
    source = read_graph(path)
    return simulate(source.graph, engine=engine, task_name=source.task_name)


@settings(max_examples=12)
@given(graph=task_graphs())
def test_files_replay_as_what_was_written(graph, tmp_path_factory):
    """Both forms, on both engines: the same times to the last bit."""
    folder = tmp_path_factory.mktemp("graphs")
    for form in FORMS:
        write_graph(folder / form, graph)
        for engine in ("simpy", "compiled"):
            expected, got = simulate(graph, engine=engine), replayed(folder / form, engine)
            assert [getattr(got, name).tobytes() for name in TIMES] == [
                getattr(expected, name).tobytes() for name in TIMES
            ]
    assert sorted(path.name for path in folder.iterdir()) == sorted(FORMS)


@settings(max_examples=12)
@given(graph=task_graphs(max_tasks=12), data=st.data())
def test_ids_may_be_any_numbers_in_any_order(graph, data, tmp_path_factory):
    """Tasks listed in another order under other rising ids: each keeps its times, in the order of the file."""
    folder = tmp_path_factory.mktemp("graphs")
    write_graph(folder / "plain.json", graph)
    content = json.loads((folder / "plain.json").read_text())
    whole = st.integers(-(2**63), 2**63 - 1)
    ids = sorted(data.draw(st.sets(whole, min_size=graph.size, max_size=graph.size)))
    order = data.draw(st.permutations(range(graph.size)))
    tasks = content["tasks"]
    tasks["id"] = [ids[each] for each in tasks["id"]]
    tasks["after"] = [[ids[each] for each in others] for others in tasks.get("after", [[]] * graph.size)]
    if "stream" in tasks:
        tasks["stream"] = [None if each is None else f"stream {each}" for each in tasks["stream"]]
    content["tasks"] = {key: [column[i] for i in order] for key, column in tasks.items()}
    source = read_graph(write(folder, **content))

    write_schedule(folder / "times.csv", source, simulate(source.graph))

    expected, rows = simulate(graph), (folder / "times.csv").read_text().splitlines()
    assert rows[0] == "id,ready_s,start_s,end_s"
    for row, i in zip(rows[1:], order, strict=True):
        identity, *times_s = row.split(",")
        assert int(identity) == ids[i]
        assert [float(time_s) for time_s in times_s] == [getattr(expected, name)[i] for name in TIMES]


def test_everything_but_id_and_work_has_a_default(tmp_path):
    """A task that says nothing else lasts ``work`` seconds from the start."""
    path = write(tmp_path, [{"id": 3, "work": 2}, {"id": 2, "work": 1.5, "rate_limit": 0.5}], [])

    assert replayed(path).end_s.tolist() == [3.0, 2.0]
    assert replayed(write_table(tmp_path, [{"id": 3, "work": 2}], [])).end_s.tolist() == [2.0]


def test_pandas_reads_and_writes_the_table(tmp_path):
    """Names and numbers as in JSON; what is missing is null; without weights all are 1."""
    uses = {"uses": {0: 1.0}, "stream": 0}
    graph = task_graph([2.0], [{"work": 1.0, "rate_limit": 0.5, **uses}, {"work": 3.0, "after": [0], **uses}])
    write_graph(tmp_path / "graph.parquet", graph, names=["a", "b"], kinds=["kernel", "kernel"])
    table = pd.read_parquet(tmp_path / "graph.parquet")

    assert table["name"].tolist() == ["a", "b"]
    assert [list(row) for row in table["uses"]] == [["link0"], ["link0"]]
    assert table["rate_limit"].isna().tolist() == [False, True]
    assert table.attrs == {"version": 1, "resources": [{"name": "link0", "capacity": 2.0, "sharing": "fair"}]}

    table.drop(columns=["weights", "kind"]).to_parquet(tmp_path / "again.parquet")
    assert replayed(tmp_path / "again.parquet").end_s.tolist() == [2.0, 3.5]


def test_large_tables_are_read_group_by_group(tmp_path):
    """Rows in groups of two, resources as categories: nothing that pandas or arrow may write is refused."""
    graph = task_graph([2.0, 3.0], [{"work": 1.0 + i, "uses": {i % 2: 1.0}} for i in range(7)])
    write_graph(tmp_path / "graph.parquet", graph)
    table = parquet.read_table(tmp_path / "graph.parquet")
    kind = pyarrow.large_list(pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))
    for name, uses in (("plain", table["uses"]), ("coded", pyarrow.array(table["uses"].to_pylist(), kind))):
        path = tmp_path / f"{name}.parquet"
        parquet.write_table(table.set_column(table.column_names.index("uses"), "uses", uses), path, row_group_size=2)
        assert replayed(path).end_s.tolist() == simulate(graph).end_s.tolist()


def test_table_without_rows(tmp_path):
    write_graph(tmp_path / "graph.parquet", task_graph([1.0], []))

    assert replayed(tmp_path / "graph.parquet").makespan_s == 0.0


def test_half_a_device_needs_a_rate_limit(tmp_path):
    """What the page warns of: occupancy 0.5 of a device of capacity 1 runs at rate 2 unless it is told not to."""
    device, kernel = {"name": "gpu0", "capacity": 1}, {"id": 0, "work": 1, "uses": {"gpu0": 0.5}}

    assert replayed(write(tmp_path, [kernel], [device])).makespan_s == 0.5
    assert replayed(write(tmp_path, [{**kernel, "rate_limit": 1}], [device])).makespan_s == 1.0


def test_parquet_schedule_holds_the_same_times(tmp_path):
    """Columns and order of the CSV, to the last bit."""
    source = read_graph(write(tmp_path, [{**TASK, "id": 9, "latency_s": 0.1}, {**TASK, "after": [9]}]))
    schedule = simulate(source.graph)
    for name in ("times.csv", "times.parquet"):
        write_schedule(tmp_path / name, source, schedule)

    text, table = pd.read_csv(tmp_path / "times.csv"), pd.read_parquet(tmp_path / "times.parquet")
    assert table["id"].tolist() == [9, 7]
    pd.testing.assert_frame_equal(text, table, check_exact=True)


def chain(*links):
    """Tasks that wait for each other: (id, ids) pairs."""
    return [{"id": identity, "work": 1, "after": list(others)} for identity, others in links]


BAD_JSON = {
    "cycle": ({"tasks": [*chain((5, [9]), (9, [5])), {**TASK, "after": [5]}]}, "got the cycle 5 -> 9 -> 5"),
    "named cycle": ({"tasks": [{**TASK, "name": "send", "after": [7]}]}, r"cycle 7 \(send\) -> 7 \(send\)"),
    "unknown resource": (
        {"tasks": [{**TASK, "name": "send", "uses": {"a-to-c": 1}}]},
        r"uses of task 7 \(send\) must name resources of the file, got 'a-to-c'; did you mean 'a-to-b'\?",
    ),
    "unknown task": ({"tasks": chain((1, []), (2, [1]), (3, [1, 4]))}, "after of task 3 must name tasks .* got 4"),
    "repeated id": ({"tasks": [TASK, TASK]}, "ids of tasks must differ, got 7 twice"),
    "repeated resource": ({"resources": [LINK, LINK]}, "names of resources must differ, got 'a-to-b' twice"),
    "id": ({"tasks": [{**TASK, "id": 2**63}]}, r"`\$.tasks.id\[0\]`"),
    "no list": ({"tasks": {"id": 1, "work": [1]}}, r"Expected `array`, got `int` - at `\$.tasks.id`"),
    "fraction of an id": ({"tasks": [{**TASK, "id": 1.5}]}, r"`\$.tasks.id\[0\]`"),
    "id of another": ({"tasks": [{"id": 1, "work": 1, "after": ["x"]}]}, r"`\$.tasks.after\[0\]\[0\]`"),
    "few": (
        {"tasks": {"id": [1, 2], "work": [1, 1], "name": ["a"]}},
        "name must have one entry for each of 2 tasks, got 1",
    ),
    "no works": ({"tasks": {"id": [1], "work": []}}, "work must have one entry for each of 1 tasks, got 0"),
    "weights": (
        {"tasks": {"id": [1], "work": [1], "name": ["a"], "uses": [["a-to-b"]], "weights": [[1, 1]]}},
        r"weights of task 1 \(a\) must be as many as its uses, got 2 for 1",
    ),
    "negative work": (
        {"tasks": [TASK, {**TASK, "id": 8, "work": -1}]},
        "work of task 8 must be finite and >= 0, got -1",
    ),
    "NaN work": ({"tasks": [{**TASK, "work": float("nan")}]}, "JSON is malformed"),
    "no work": ({"tasks": [{"id": 1}]}, "missing required field `work`"),
    "late": ({"tasks": [{**TASK, "latency_s": -1e-9}]}, "latency_s of task 7 must be"),
    "early": ({"tasks": [{**TASK, "start_s": -1}]}, "start_s of task 7 must be"),
    "capacity 0": ({"resources": [{**LINK, "capacity": 0}]}, r"capacity of resource 0 must .* got 0.0 \(a-to-b\)"),
    "weight": ({"tasks": [{**TASK, "uses": {"a-to-b": 0}}]}, r"use_weight of use 0 must .* got 0.0 \(task 7\)"),
    "rate limit": (
        {"tasks": [{**TASK, "rate_limit": 0}]},
        "rate_limit of task 7 must be > 0, or the task can never run",
    ),
    "endless": ({"tasks": [{"id": 7, "work": 1e300, "rate_limit": 1e-300}]}, "seconds of work of task 7 .* got inf"),
    "beyond all time": (
        {"tasks": [{**TASK, "start_s": 1e308, "latency_s": 1e308}]},
        "start_s, latency_s and work must add up to a finite time, got inf",
    ),
    "sharing": ({"resources": [{**LINK, "sharing": "first"}]}, r"'first' - at `\$.resources\[0\].sharing`"),
    "version": ({"version": 3, "new": 1}, "version must be 2, the only one that this program reads, got 3"),
    "former version": (
        {"version": 1, "tasks": [TASK]},
        "version must be 2, got 1, whose tasks are objects: write the file again, with one list for each key",
    ),
    "no version": ({"version": None}, "got `null`"),
    "unknown key": ({"taks": []}, "unknown field `taks`"),
    "unknown key of a task": ({"tasks": [{**TASK, "prio": 1}]}, r"unknown field `prio` - at `\$.tasks`"),
}


@pytest.mark.parametrize("case", BAD_JSON, ids=lambda case: case.replace(" ", "-"))
def test_bad_graph_is_refused(case, tmp_path):
    """The message names the task by its own id and name."""
    changes, message = BAD_JSON[case]

    with pytest.raises(ConfigError, match=message):
        replayed(write(tmp_path, **changes))


BAD_TABLES = {
    "NaN": ([{**TASK, "work": 1.0, "latency_s": np.inf}], {}, "latency_s of task 7 must be finite and >= 0, got inf"),
    "null": ([TASK, {**TASK, "work": None}], {}, "work must be there for every task, got 1 without"),
    "unknown column": ([{**TASK, "prio": 1}], {}, "columns must be of id, .*, each once, got 'prio'"),
    "no id": ([{"work": 1}], {}, "columns must hold 'id', got work"),
    "words": ([{**TASK, "work": "much"}], {}, "much"),
    "fraction of an id": ([{**TASK, "id": 1.5}], {}, "1.5"),
    "resource": ([{**TASK, "uses": ["x"]}], {}, "uses of task 7 must name resources of the file, got 'x'"),
    "no resource": ([{**TASK, "uses": [None]}], {}, "uses of task 7 must name resources of the file, got 'None'"),
    "weights": ([{**TASK, "weights": [1.0, 2.0]}], {}, "weights of task 7 must be as many as its uses, got 2 for 1"),
    "null weight": ([{**TASK, "weights": [None]}], {}, "use_weight of use 0 must be finite and > 0, got nan"),
    "version": ([TASK], {"version": 2}, "version must be 1"),
    "capacity": ([TASK], {"resources": [{"name": "a-to-b"}]}, "missing required field `capacity`"),
}


@pytest.mark.parametrize("case", BAD_TABLES, ids=lambda case: case.replace(" ", "-"))
def test_bad_table_is_refused(case, tmp_path):
    """As JSON is, and what only tables can get wrong."""
    tasks, changes, message = BAD_TABLES[case]
    tasks = [{**task, "uses": list(task["uses"])} if "uses" in task else task for task in tasks]

    with pytest.raises(ConfigError, match=message):
        replayed(write_table(tmp_path, tasks, **changes))


def test_table_without_resources_is_refused(tmp_path):
    """Some other program's Parquet."""
    pd.DataFrame([{"id": 1, "work": 1.0}]).to_parquet(tmp_path / "graph.parquet")

    with pytest.raises(ConfigError, match=r"graph\.parquet: metadata must hold version and resources"):
        read_graph(tmp_path / "graph.parquet")


def test_schema_is_the_one_in_the_documents():
    """Written by hand nowhere: ``docs/task-graph.schema.json`` is what the reader is made of."""
    schema = json.loads((Path(__file__).parents[2] / "docs" / "task-graph.schema.json").read_text())

    form = msgspec.json.schema(TaskGraphFile)
    assert schema == {"$schema": "https://json-schema.org/draft/2020-12/schema", **form}
    assert set(schema["$defs"]) == {"TaskGraphFile", "ResourceRow", "TaskColumns"}


@pytest.mark.parametrize("form", FORMS)
def test_cut_off_file_is_refused(form, tmp_path):
    """At any place, naming the file."""
    write_graph(tmp_path / form, task_graph([1.0], [{"uses": {0: 1.0}}] * 4))
    whole = (tmp_path / form).read_bytes()
    for length in (0, 3, 40, len(whole) // 2, len(whole) - 4):
        (tmp_path / form).write_bytes(whole[:length])
        with pytest.raises(ConfigError, match=f"task graph .*{form}: "):
            read_graph(tmp_path / form)


def test_not_utf8_is_refused(tmp_path):
    path = write(tmp_path, [{**TASK, "name": "send"}])
    path.write_bytes(path.read_bytes().replace(b"send", b"\xff"))

    with pytest.raises(ConfigError, match=r"graph\.json: "):
        read_graph(path)


@pytest.mark.parametrize("form", FORMS)
def test_what_does_not_fit_is_refused_before_it_is_read(form, tmp_path, monkeypatch):
    """With the estimate; and again before it is replayed, where another engine may need less."""
    write_graph(tmp_path / form, task_graph([1.0], [{"uses": {0: 1.0}}] * 2000))
    monkeypatch.setattr(memory_need, "allocatable_bytes", lambda: 2**18)
    if form.endswith("json"):
        monkeypatch.setattr("pathlib.Path.read_bytes", lambda path: pytest.fail("read"))

    with pytest.raises(InfeasiblePlanError, match=r"reading .* about 0\.\d+ GiB of memory, and 0.000244 GiB are free"):
        read_graph(tmp_path / form)


def test_replay_that_does_not_fit_is_refused(monkeypatch):
    """SimPy keeps a process a task: ten times the memory of the compiled engine."""
    graph = task_graph([1.0], [{"uses": {0: 1.0}}] * 100)
    monkeypatch.setattr(memory_need, "allocatable_bytes", lambda: 2**17)

    assert simulate(graph, engine="compiled").makespan_s == pytest.approx(100)
    with pytest.raises(InfeasiblePlanError, match="replaying 100 tasks with engine simpy would take about"):
        simulate(graph, engine="simpy")


def test_free_memory_is_known():
    assert 2**20 < memory_need.allocatable_bytes() < 2**60


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    """JSON and CSV need nothing beside."""
    source = read_graph(write(tmp_path))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    there = write(tmp_path).rename(tmp_path / "there.parquet")
    for attempt in (
        lambda path: write_graph(path, source.graph),
        lambda path: read_graph(there),
        lambda path: write_schedule(path, source, simulate(source.graph)),
    ):
        with pytest.raises(ConfigError, match=r"pip install 'orrery-training\[parquet\]'"):
            attempt(tmp_path / "graph.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["there.parquet"]


def test_resources_of_one_name_are_not_written(tmp_path):
    graph = task_graph([1.0, 1.0], [])
    object.__setattr__(graph, "resource_names", ("a", "a"))

    with pytest.raises(ConfigError, match="names of resources must differ, got 'a' twice"):
        write_graph(tmp_path / "graph.json", graph)
    assert list(tmp_path.iterdir()) == []
