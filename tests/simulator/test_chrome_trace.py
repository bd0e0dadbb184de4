"""Traces that viewers show whole."""

import json

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from trace_checks import check_trace

from groundwork.errors import ConfigError
from simulator.formats.chrome_trace import write_trace


def rows(*tasks):
    columns = ("name", "kind", "process", "stream", "start_s", "end_s", "bytes")
    return pd.DataFrame([dict(zip(columns, task, strict=True)) for task in tasks], columns=columns)


TWO = rows(
    ("forward", "compute", "gpu0", "compute", 0.0, 1.5e-3, 0), ("send", "transfer", "nic0", "out", 1.5e-3, 2e-3, 64)
)


def events(path, phase):
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == phase]


def test_tasks_arrows_names_and_counters(tmp_path):
    path = tmp_path / "trace.json"

    write_trace(path, TWO, dependencies=[(0, 1)], counters={("gpu0", "memory"): ([0.0, 1e-3], [10.0, 20.0])})

    first, second = events(path, "X")
    assert (first["ts"], first["dur"], second["ts"], second["dur"]) == (0.0, 1500.0, 1500.0, 500.0)
    assert second["args"] == {"bytes": 64}
    assert {event["args"]["name"] for event in events(path, "M") if event["name"] == "process_name"} == {"gpu0", "nic0"}
    (leaves,), (arrives,) = events(path, "s"), events(path, "f")
    assert leaves["id"] == arrives["id"]
    assert (leaves["ts"], arrives["ts"], arrives["bp"]) == (1499.999, 1500.0, "e")
    assert [event["args"]["memory"] for event in events(path, "C")] == [10.0, 20.0]
    assert check_trace(path) == 2


def test_start_up_latency_is_a_slice_before_its_task_in_a_lane_of_its_own(tmp_path):
    """The second task starts up from 1.0 to 1.2 ms and waits for its turn until 1.5 ms, beside the first."""
    path = tmp_path / "trace.json"
    both = rows(("a", "transfer", "gpu0", "send", 0.0, 1.5e-3, 8), ("b", "transfer", "gpu0", "send", 1.5e-3, 2e-3, 8))

    write_trace(path, both.assign(ready_s=[0.0, 1e-3], latency_s=[0.0, 2e-4]))

    waits = [event for event in events(path, "X") if event["cat"] == "latency"]
    assert [(event["name"], event["ts"], event["dur"], event["args"]) for event in waits] == [
        ("start-up latency", 1000.0, 200.0, {"of": "b"})
    ]
    first, second = (event for event in events(path, "X") if event["cat"] != "latency")
    assert waits[0]["tid"] == second["tid"] != first["tid"]
    assert check_trace(path) == 2


@settings(max_examples=35, deadline=None)
@given(
    tasks=st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.floats(0, 10), st.floats(0, 3)), max_size=25
    )
)
def test_overlapping_tasks_take_lanes_of_their_own(tasks, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "trace.json"

    write_trace(path, rows(*(("t", "k", process, stream, at, at + for_s, 0) for process, stream, at, for_s in tasks)))

    assert check_trace(path) == len(tasks)
    names = [(event["pid"], event["args"]["name"]) for event in events(path, "M") if event["name"] == "thread_name"]
    assert len(names) == len(set(names))


def test_checker_finds_overlap_and_broken_nanoseconds(tmp_path):
    path = tmp_path / "trace.json"
    task = {"ph": "X", "name": "t", "pid": 0, "tid": 0, "dur": 2.0}
    path.write_text(json.dumps({"traceEvents": [task | {"ts": 0.0}, task | {"ts": 1.0}]}))
    with pytest.raises(ConfigError, match="must not overlap"):
        check_trace(path)
    path.write_text(json.dumps({"traceEvents": [task | {"ts": 0.00005}]}))
    with pytest.raises(ConfigError, match="whole nanoseconds"):
        check_trace(path)


def test_two_writings_are_equal_byte_for_byte(tmp_path):
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    for path in paths:
        write_trace(path, TWO, dependencies=[(0, 1)])
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_bad_rows_leave_the_old_file(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text("old")
    with pytest.raises(ConfigError, match="stream missing"):
        write_trace(path, TWO.drop(columns="stream"))
    with pytest.raises(ConfigError, match="row 1 of a trace must end after it starts"):
        write_trace(path, TWO.assign(end_s=[1.5e-3, 0.0]))
    with pytest.raises(TypeError):
        write_trace(path, TWO.assign(bytes=[object(), object()]))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_folder_must_exist(tmp_path):
    with pytest.raises(ConfigError, match="must be in a folder that can be written: No such file"):
        write_trace(tmp_path / "none" / "trace.json", TWO)
