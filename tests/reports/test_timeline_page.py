"""The timeline page has every task, what each waited for and which links it used: packed, and read back here."""

import base64
import json
import re
import zlib

import numpy as np
import pytest
from page_kinds import small_view

from executor.measurement.measured_run import Measurement
from groundwork.errors import ConfigError
from planner.plan.pace import pace_of
from reports.pages.timeline_page import timeline_html

TYPES = {"Uint8Array": "u1", "Uint16Array": "<u2", "Uint32Array": "<u4", "Float64Array": "<f8"}


def unpacked(packed):
    data = zlib.decompress(base64.b64decode(packed["data"]))
    if packed["type"] == "json":
        return json.loads(data)
    values = np.frombuffer(data, dtype=TYPES[packed["type"]]).astype(np.int64 if "Uint" in packed["type"] else float)
    return np.cumsum(np.where(values % 2, -(values + 1) // 2, values // 2)) if "steps" in packed else values


def data_of(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S).group(1))


@pytest.fixture(scope="module")
def view():
    return small_view("p100-4x4:nodes=2")


@pytest.fixture(scope="module")
def data(view):
    return data_of(timeline_html(view))


def test_every_task_is_there_once_and_at_its_time(view, data):
    columns = {name: unpacked(each) for name, each in data["timeline"]["columns"].items()}
    tick_s = data["timeline"]["tick_s"]
    timeline = view.replay.timeline().set_index("id").loc[columns["id"]]
    assert sorted(columns["id"]) == list(range(view.program.size))
    assert columns["start"] * tick_s == pytest.approx(timeline["start_s"].to_numpy(), abs=tick_s)
    ends = (columns["start"] + columns["duration"]) * tick_s
    assert ends == pytest.approx(timeline["end_s"].to_numpy(), abs=tick_s)
    named = zip(columns["name"], columns["part"], columns["device"] - 1, columns["peer"] - 1, strict=True)
    assert [
        columns["names"][i].replace("[#]", f"[{part}]").replace("(@)", f"({a} to {b})") for i, part, a, b in named
    ] == list(timeline["name"])


def test_dependencies_come_back_as_they_were(view, data):
    packed = {name: unpacked(each) for name, each in data["tasks"].items() if name != "size"}
    program, back = view.program, packed["after_back"].astype(np.int64)
    task = np.repeat(np.arange(program.size), packed["after_count"])
    after = task - np.where(back % 2, -(back + 1) // 2, back // 2)
    assert (after == program.after).all()
    late = np.repeat(np.arange(program.size), packed["carried_count"])
    pairs = set(zip(late.tolist(), packed["carried"].tolist(), strict=True))
    assert pairs == set(map(tuple, program.carried.tolist()))


def test_no_task_starts_before_what_it_waited_for_has_ended(view, data):
    """The certificate of the arrows: dependencies and the task before in the stream end before the latency begins."""
    packed = {name: unpacked(each) for name, each in data["tasks"].items() if name != "size"}
    columns = {name: unpacked(data["timeline"]["columns"][name]) for name in ("id", "lead")}
    timeline, tick_s = view.replay.timeline(), data["timeline"]["tick_s"]
    ready_s = timeline["start_s"].to_numpy() - columns["lead"][np.argsort(columns["id"])] * tick_s
    ends_s, before = timeline["end_s"].to_numpy(), packed["stream_before"].astype(int) - 1
    queued = before >= 0
    assert queued.sum() > 0
    assert (ends_s[before[queued]] <= ready_s[queued] + 2 * tick_s).all()
    lasted = ends_s - timeline["start_s"].to_numpy()
    assert (packed["alone"] * tick_s <= lasted + 2 * tick_s).all()


def test_the_headline_names_what_is_waited_for_longest(view):
    path = view.path.seconds_by("kind", communication=True)
    pace = pace_of(view.replay)
    assert view.headline.endswith(f": {pace.finding}.")
    communication = sum(each.share for each in pace.setters if each.kind != "arithmetic")
    assert communication == pytest.approx(sum(path.values()) / view.replay.iteration_s)
    assert (pace.first.kind == "arithmetic") == (pace.first.share > max(each.share for each in pace.setters[1:]))


def test_the_routes_take_of_the_links_what_the_replay_counts(view, data):
    """A library takes more of them than its bytes, where it does not reach all of their bandwidth."""
    packed = {name: unpacked(each) for name, each in data["links"].items()}
    start = np.concatenate([[0], np.cumsum(packed["route_count"].astype(int))])
    moved = np.zeros(len(packed["names"]))
    for task, route in enumerate(packed["route"].tolist()):
        rows = slice(start[route], start[route + 1])
        moved[packed["route_link"][rows]] += packed["work_bytes"][task] * packed["route_weight"][rows]
    assert moved.sum() > 0
    # one steady iteration takes as much as the window of one iteration in which the replay counts use
    use, (begin, end) = view.replay.link_use(), view.replay.window_s
    taken = use.share.mean(axis=1) * (end - begin) * view.program.cluster.bandwidth
    assert moved == pytest.approx(taken, rel=1e-6, abs=1)
    assert (use.moved_bytes <= moved + 1).all()


def test_the_steps_of_the_path_are_those_of_the_iteration_shown(view, data):
    tasks = unpacked(data["path"]["task"]).tolist()
    steps = [step for step in view.path.steps if step.iteration == view.replay.shown[0]]
    assert tasks == [step.task for step in steps]
    assert len(tasks) > 5


def measurement_of(view, *, tasks=None):
    """Three iterations, each a tenth slower than simulated."""
    program, timeline = view.program, view.replay.timeline()
    times = [timeline[key].to_numpy()[: tasks or program.size] * 1.1 for key in ("start_s", "end_s")]
    begins = np.arange(3)[:, None] * float(times[1].max())
    return Measurement(
        start_s=times[0] + begins,
        end_s=times[1] + begins,
        sent_bytes=np.zeros_like(begins + times[0]),
        paused=np.zeros(3, dtype=bool),
        loss=np.ones(3),
        peak_memory_bytes=np.ones(8),
    )


def test_simulated_stands_above_measured_of_each_device(view, tmp_path):
    measurement_of(view).write(tmp_path / "measured.npz")
    both = view.with_measurement(tmp_path / "measured.npz")
    html = timeline_html(both)
    rows = unpacked(data_of(html)["timeline"]["columns"]["rows"])
    labels = [row["label"] for row in rows if row["stream"] == "compute"]
    assert labels[:2] == ["node0/gpu0 simulated compute", "node0/gpu0 measured compute"]
    assert len(labels) == 16
    assert "Simulated above measured" in html
    assert data_of(html)["timeline"]["count"] == 2 * view.program.size


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path, view: path.write_text("no"), "is damaged, or no file of arrays"),
        (lambda path, view: measurement_of(view, tasks=5).write(path), "has 5 tasks"),
        (lambda path, view: None, "No such file"),
    ],
    ids=["no measurement", "another plan", "missing"],
)
def test_a_measurement_of_something_else_is_refused(view, tmp_path, write, said):
    write(tmp_path / "measured.npz", view)
    with pytest.raises(ConfigError, match=said):
        view.with_measurement(tmp_path / "measured.npz")


def test_the_page_is_small_and_says_its_notes(view):
    html = timeline_html(view)
    assert "a note" in html
    assert len(html) < 200_000
