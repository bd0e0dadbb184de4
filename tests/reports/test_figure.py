"""One function draws every result, and every result is a frame."""

from dataclasses import replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from page_kinds import small_view, sweep_frame
from synthetic_comparison import make_comparison
from test_validation_page import DEVICES, make_strategy

import orrery
from executor.validation.validation_result import Validation
from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from studies.oracle.oracle_request import OracleRequest
from studies.oracle.projection import oracle
from studies.whatif.scenarios import WhatIf, WhatIfRow


def rows_of_what_if():
    common = {"devices": 4, "batch": 64}
    return (
        WhatIfRow(scenario="today", strategy="data", samples_per_s=100.0, against_today=1.0, **common),
        WhatIfRow(scenario="slow", strategy="data", samples_per_s=80.0, against_today=0.8, **common),
        WhatIfRow(scenario="lost", strategy="data", reason="no route", **common),
    )


def what_if():
    return WhatIf(model="m", cluster="c", scenarios=(), rows=rows_of_what_if())


def validation():
    strategies = (make_strategy("data", 0.5, 0.52), make_strategy("model", 0.4, 0.39))
    return Validation(
        model="m", batch=32, cluster="lab", devices=DEVICES, stand_in=False, lab=True, strategies=strategies
    )


def oracle_table():
    return oracle(
        load_model("lenet5", batch=32),
        load_cluster("abci-v100"),
        OracleRequest(dataset="imagenet", devices=(1, 2), batch_per_device=32, epochs=1),
    )


RESULTS = {
    "comparison": (lambda: make_comparison(tasks=40, devices=2), ("breakdown", "ladder", "agreement")),
    "replay": (lambda: small_view().replay, ("timeline",)),
    "oracle": (oracle_table, ("iterations", "epochs", "memory")),
    "what-if": (what_if, ("change",)),
    "validation": (validation, ("ladder",)),
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_has_a_frame_and_its_figures(name):
    make, pictures = RESULTS[name]
    result = make()
    assert len(result.to_frame()) > 0
    assert orrery.figure(result).to_json() == orrery.figure(result, pictures[0]).to_json()
    for picture in pictures:
        drawn = orrery.figure(result, picture)
        assert isinstance(drawn, go.Figure)
        assert len(drawn.data) > 0


def test_a_comparison_as_a_frame_has_its_numbers():
    comparison = make_comparison(tasks=40, devices=2)
    frame = comparison.to_frame().set_index("name")
    for strategy in comparison.strategies:
        row = frame.loc[strategy.name]
        assert row["simulated_s"] == strategy.simulated_s
        assert row["peak_memory_bytes"] == max(strategy.peak_memory_bytes)
        assert row["ladder.additive_s"] == strategy.ladder_s["additive"]


def test_strategies_of_equal_times_are_one_point_with_both_names():
    """One drawn over the other would look as if there were one."""
    made = make_comparison(tasks=40, devices=2)
    first, second, *others = made.strategies
    twin = replace(second, additive_s=first.additive_s, simulated_s=first.simulated_s)
    for winner in (first.name, second.name, others[0].name):
        drawn = orrery.figure(replace(made, strategies=(first, twin, *others), winner=winner), "agreement")
        named = [row[2] for trace in drawn.data[2:] for row in trace.customdata]
        assert sorted(named) == sorted([f"{first.name} and {second.name} alike", *(each.name for each in others)])


def test_a_logarithmic_axis_of_a_sweep_has_ticks_at_one_two_and_five():
    frame = pd.DataFrame({"devices": [1, 2], "strategy": "data", "batch": 8, "iteration_s": [0.3, 0.007]})
    axis = orrery.figure(frame).layout.yaxis
    assert (axis.type, list(axis.ticktext)) == ("log", ["10", "20", "50", "100", "200"])


def test_an_oracle_as_a_frame_has_a_row_for_each():
    table = oracle_table()
    frame = table.to_frame()
    assert frame["iteration_s"].tolist() == [row.iteration_s for row in table.rows]


def test_a_validation_as_a_frame_has_errors():
    frame = validation().to_frame()
    assert frame["error"].tolist() == pytest.approx([0.5 / 0.52 - 1, 0.4 / 0.39 - 1])


def test_bars_of_a_timeline_are_its_tasks_and_cells_hold_as_much():
    """Each bar is a task; in cells, the kind drawn is the one that takes most of the cell, found here one by one."""
    replay = small_view().replay
    tasks = replay.to_frame()
    bars = orrery.figure(replay)
    assert sum(len(trace.x) for trace in bars.data) == len(tasks)
    assert "each a bar" in bars.layout.title.text

    cells = orrery.figure(replay, most_bars=10)
    z, end_s = np.array(cells.data[0].z, dtype=float), tasks["end_s"].max()
    words = list(cells.data[0].colorbar.ticktext)
    row = list(cells.layout.yaxis.ticktext).index("node0/gpu0 compute")
    mine = tasks[(tasks["device"] == 0) & (tasks["stream"] == "compute")]
    for cell in range(0, z.shape[1], 37):
        low, high = (cell / z.shape[1] * end_s, (cell + 1) / z.shape[1] * end_s)
        inside = (mine["end_s"].clip(low, high) - mine["start_s"].clip(low, high)).groupby(mine["kind"]).sum()
        drawn = z[row, cell]
        if inside.max() > 1e-15:
            assert inside[words[int(drawn)].replace(" ", "_")] == pytest.approx(inside.max(), rel=1e-6)
        else:
            assert np.isnan(drawn)


def test_a_sweep_takes_the_smallest_of_a_place():
    drawn = orrery.figure(sweep_frame())
    assert {trace.name for trace in drawn.data} == {"data", "owt"}
    data = next(trace for trace in drawn.data if trace.name == "data")
    assert list(data.x) == [1, 2, 4]
    assert np.array(data.y) == pytest.approx([1.0, 1 / 2**0.5, 0.5])  # ms


@pytest.mark.parametrize(
    ("result", "what", "options", "said"),
    [
        (3, "", {}, "figure must be of one of Comparison.* got int"),
        (what_if(), "pie", {}, "must be one of change, got 'pie'"),
        (sweep_frame(), "", {"y": "watts"}, "y must name one of .* got 'watts'"),
        (sweep_frame().assign(iteration_s=np.nan), "", {}, "no point has both"),
    ],
    ids=["no result", "no such picture", "no such column", "nothing to draw"],
)
def test_what_cannot_be_drawn_is_said(result, what, options, said):
    with pytest.raises(ConfigError, match=said):
        orrery.figure(result, what, **options)
