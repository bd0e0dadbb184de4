"""A packed timeline holds every task, and no two tasks of a row are drawn over each other."""

import base64
import json
import zlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from synthetic_comparison import make_timeline

from reports.drawings.timeline_layout import assign_lanes, side_by_side, timeline_rows, with_members
from reports.drawings.timeline_packing import alike_owners, pack_timeline

DEVICES = ("node0/gpu0", "node0/gpu1")
DTYPES = {"Uint8Array": "u1", "Uint16Array": "<u2", "Uint32Array": "<u4", "Float64Array": "<f8"}


def unpack(packed):
    data = zlib.decompress(base64.b64decode(packed["data"]))
    if packed["type"] == "json":
        return json.loads(data)
    values = np.frombuffer(data, DTYPES[packed["type"]])
    return np.cumsum(signed(values)) if "steps" in packed else values


def signed(codes):
    codes = codes.astype(np.int64)
    return np.where(codes % 2, -(codes + 1) // 2, codes // 2)


def columns_of(packed):
    return {key: unpack(value) for key, value in packed["columns"].items()}


def test_packed_columns_give_back_every_task():
    timeline = make_timeline(np.random.default_rng(3), DEVICES, tasks=500, end_s=0.2)
    packed = pack_timeline(timeline, DEVICES)
    columns = columns_of(packed)
    found = pd.DataFrame(
        {
            "name": [columns["names"][code] for code in columns["name"]],
            "kind": [columns["kinds"][code] for code in columns["kind"]],
            "start_ns": columns["start"].astype(int),
            "end_ns": columns["start"].astype(int) + columns["duration"],
            "bytes": columns["bytes"],
        }
    )
    wanted = timeline[["name", "kind", "bytes"]].assign(
        start_ns=np.rint(timeline["start_s"] * 1e9).astype(int), end_ns=np.rint(timeline["end_s"] * 1e9).astype(int)
    )
    keys = list(found)
    pd.testing.assert_frame_equal(
        found.sort_values(keys, ignore_index=True),
        wanted[keys].sort_values(keys, ignore_index=True),
        check_dtype=False,
    )
    assert packed["count"] == 500
    assert packed["tick_s"] == 1e-9


def test_rows_follow_the_cluster_and_the_rest_comes_last():
    tasks = [(1, "compute"), (-1, "transfers"), (0, "gradients"), (0, "compute"), (1, "compute")]
    rows, row = timeline_rows(pd.DataFrame(tasks, columns=["device", "stream"]), DEVICES)
    labels = ["node0/gpu0 compute", "node0/gpu0 gradients", "node0/gpu1 compute", "transfers"]
    assert rows == labels
    assert row.tolist() == [2, 3, 1, 0, 2]


def test_an_iteration_of_minutes_still_fits_32_bits():
    timeline = make_timeline(np.random.default_rng(3), DEVICES, tasks=60, end_s=300.0)
    packed = pack_timeline(timeline, DEVICES)
    end = unpack(packed["columns"]["start"]).astype(float) + unpack(packed["columns"]["duration"])
    assert end.max() * packed["tick_s"] == pytest.approx(timeline["end_s"].max(), abs=2e-7)


def test_an_empty_timeline_packs():
    timeline = make_timeline(np.random.default_rng(3), DEVICES, tasks=60, end_s=1.0).iloc[:0]
    assert pack_timeline(timeline, DEVICES)["count"] == 0


def four_tasks():
    """Two devices compute alike; the first sends to the second, and both take part in a collective."""
    return pd.DataFrame(
        {
            "id": range(4),
            "name": ["fc forward [0]", "fc forward [1]", "fc to out (0 to 1)", "fc gradient synchronisation over 2"],
            "kind": ["forward", "forward", "transfer", "collective"],
            "device": [0, 1, 0, -1],
            "peer": [-1, -1, 1, -1],
            "stream": ["compute", "compute", "transfer", "collective"],
            "layer": "fc",
            "phase": "forward",
            "start_s": [0.0, 0.0, 1.5, 2.0],
            "end_s": [1.0, 1.0, 2.0, 3.0],
            "bytes": 0.0,
            "origin": "simulated",
            "waited_for": [-1, -1, 0, 2],
            "ready_s": [0.0, 0.0, 1.0, 2.0],
            "latency_s": [0.0, 0.0, 0.2, 0.0],
        }
    )


def entries(packed):
    """Labels of rows with the tasks that they show."""
    columns = columns_of(packed)
    bounds = np.cumsum([0, *columns["row_count"].tolist()])
    tasks = columns["id"][columns["item"]].tolist()
    return {row["label"]: tasks[a:b] for row, a, b in zip(columns["rows"], bounds, bounds[1:], strict=False)}


def test_communication_lies_below_every_device_that_takes_part():
    timeline = with_members(four_tasks(), {3: (0, 1)})
    packed = pack_timeline(timeline, DEVICES, ids=True)
    assert entries(packed) == {
        "node0/gpu0 compute": [0],
        "node0/gpu0 communication": [2, 3],
        "node0/gpu1 compute": [1],
        "node0/gpu1 communication": [2, 3],
    }
    assert columns_of(packed)["alike"].tolist() == [0, 0]
    assert columns_of(pack_timeline(four_tasks(), DEVICES))["rows"][-1]["label"] == "collective"


def test_waits_and_short_names_come_back():
    columns = columns_of(pack_timeline(with_members(four_tasks(), {3: (0, 1)}), DEVICES, ids=True))
    order = columns["id"].tolist()
    causes = [order[at - back] if back else -1 for at, back in enumerate(signed(columns["before"]))]
    assert dict(zip(order, causes, strict=True)) == {0: -1, 1: -1, 2: 0, 3: 2}
    at = order.index(2)
    assert (columns["lead"][at], columns["latency"][at]) == (5e8, 2e8)
    assert columns["names"][columns["name"][at]] == "fc to out (@)"
    parts = {(columns["names"][columns["name"][at]], int(columns["part"][at])) for at in range(4)}
    forward = {("fc forward [#]", 0), ("fc forward [#]", 1)}
    assert parts == forward | {("fc to out (@)", 0), ("fc gradient synchronisation over 2", 0)}


def test_measured_rows_stand_below_simulated_ones_and_are_not_alike_with_them():
    simulated = with_members(four_tasks(), {3: (0, 1)})
    measured = simulated.assign(origin="measured", end_s=simulated["end_s"] * 1.1)
    both, names = side_by_side(simulated, measured, DEVICES)
    packed = pack_timeline(both, names, ids=True)
    labels = [row["label"] for row in columns_of(packed)["rows"]]
    assert labels[:4] == [
        f"node0/gpu0 {origin} {part}" for origin in ("simulated", "measured") for part in ("compute", "communication")
    ]
    assert columns_of(packed)["alike"].tolist() == [0, 1, 0, 1]
    assert packed["origins"] == 2


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 1)), max_size=3),
        min_size=1,
        max_size=7,
    )
)
def test_owners_alike_are_those_with_the_same_entries(owners):
    """Against a comparison of sorted lists, one pair after the other; values differ by less than the slack at most."""
    rows = [(at, *entry) for at, entries in enumerate(owners) for entry in entries]
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    values = table[:, 2:] + 0.01 * (np.arange(len(table))[:, None] % 2)
    found = alike_owners(table[:, 0], table[:, 1], values, np.full(2, 0.1), len(owners))
    wanted = [next(k for k in range(at + 1) if sorted(owners[k]) == sorted(mine)) for at, mine in enumerate(owners)]
    assert found.tolist() == wanted


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 6)), min_size=1, max_size=40))
def test_tasks_that_overlap_get_lanes_of_their_own(tasks):
    row, start, length = np.array(sorted(tasks)).T
    lane, lanes = assign_lanes(row, start, start + length)
    assert (lane < lanes).all()
    for i in range(len(row)):
        taken = {lane[j] for j in range(i) if row[j] == row[i] and start[j] + length[j] > start[i]}
        assert lane[i] == min(set(range(len(row))) - taken)
        for j in range(i):
            overlap = row[i] == row[j] and max(start[i], start[j]) < min(start[i] + length[i], start[j] + length[j])
            # Same group, hence the same number of lanes, and different ones.
            assert not overlap or (lane[i] != lane[j] and lanes[i] == lanes[j])
