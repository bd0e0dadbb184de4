"""A packed timeline holds every task, and no two tasks of a row are drawn over each other."""

import base64
import json
import zlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from synthetic_comparison import make_timeline

from reports.drawings.timeline_layout import assign_lanes, pack_timeline, timeline_rows

DEVICES = ("node0/gpu0", "node0/gpu1")
DTYPES = {"Uint8Array": "u1", "Uint16Array": "<u2", "Uint32Array": "<u4", "Float64Array": "<f8"}


def unpack(packed):
    data = zlib.decompress(base64.b64decode(packed["data"]))
    return json.loads(data) if packed["type"] == "json" else np.frombuffer(data, DTYPES[packed["type"]])


def test_packed_columns_give_back_every_task():
    timeline = make_timeline(np.random.default_rng(3), DEVICES, tasks=500, end_s=0.2)
    packed = pack_timeline(timeline, DEVICES)
    columns = {key: unpack(value) for key, value in packed["columns"].items()}
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
    assert [r.label for r in rows] == labels
    assert row.tolist() == [2, 3, 1, 0, 2]


def test_an_iteration_of_minutes_still_fits_32_bits():
    timeline = make_timeline(np.random.default_rng(3), DEVICES, tasks=60, end_s=300.0)
    packed = pack_timeline(timeline, DEVICES)
    end = unpack(packed["columns"]["start"]).astype(float) + unpack(packed["columns"]["duration"])
    assert end.max() * packed["tick_s"] == pytest.approx(timeline["end_s"].max(), abs=2e-7)


def test_an_empty_timeline_packs():
    timeline = make_timeline(np.random.default_rng(3), DEVICES, tasks=60, end_s=1.0).iloc[:0]
    assert pack_timeline(timeline, DEVICES)["count"] == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 6)), min_size=1, max_size=40))
def test_tasks_that_overlap_get_lanes_of_their_own(tasks):
    row, start, length = np.array(sorted(tasks)).T
    lane, lanes = assign_lanes(row, start, start + length)
    assert (lane < lanes).all()
    for i in range(len(row)):
        for j in range(i):
            overlap = row[i] == row[j] and max(start[i], start[j]) < min(start[i] + length[i], start[j] + length[j])
            # Same group, hence the same number of lanes, and different ones.
            assert not overlap or (lane[i] != lane[j] and lanes[i] == lanes[j])
