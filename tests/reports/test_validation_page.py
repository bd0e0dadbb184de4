"""The validation page shows the validation's own numbers, and needs nothing but itself."""

import json
import math
import os
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from browsing import asked_for, chromium, needs_chromium, opened_in, own_part
from test_comparison_page import parse

from executor.validation.validation_result import StrategyValidation, Validation
from reports.pages.page_template import write_page
from reports.pages.validation_page import validation_headline, validation_html

DEVICES = ("host0/cpu", "host1/cpu")
KINDS = ("forward", "weight_gradient", "transfer", "collective")


def make_timeline(origin, scale):
    """Four tasks, one a kind, on two devices."""
    return pd.DataFrame(
        {
            "id": range(4),
            "name": [f"conv_1 {kind}" for kind in KINDS],
            "kind": KINDS,
            "device": [0, 1, 0, -1],
            "peer": [-1, -1, 1, -1],
            "stream": ["compute", "compute", "transfer", "collective"],
            "layer": ["conv_1", "fc", "conv_1", "fc"],
            "phase": "forward",
            "iteration": 0,
            "start_s": np.arange(4) * 0.1 * scale,
            "end_s": (np.arange(4) + 1) * 0.1 * scale,
            "bytes": [0.0, 0.0, 1e6, 4e6],
            "origin": origin,
        }
    )


def sums(label, words, prefixes):
    rows = {label: words}
    for i, prefix in enumerate(prefixes):
        rows[f"{prefix}predicted_s"] = [0.01 * (i + 1) * (k + 1) for k in range(len(words))]
        rows[f"{prefix}measured_s"] = [0.02 * (i + 1) * (k + 1) for k in range(len(words))]
        rows[f"{prefix}error"] = [-0.5] * len(words)
    return pd.DataFrame(rows)


def make_strategy(name, predicted_s, measured_s):
    simulated, measured = make_timeline("simulated", 1.0), make_timeline("measured", 1.1)
    tasks = simulated[["id", "name", "kind", "layer", "device", "bytes"]].assign(
        predicted_s=0.1,
        measured_s=[0.11, 0.12, 0.13, 0.4],
        error=0.1 / np.array([0.11, 0.12, 0.13, 0.4]) - 1,
        predicted_end_s=simulated["end_s"],
        measured_end_s=measured["end_s"],
    )
    return StrategyValidation(
        name=name,
        ladder_s={"additive": 0.7, "overlap": 0.3, "contention": predicted_s, "measured": measured_s},
        iterations_s=(measured_s,) * 9,
        rounds=3,
        quartiles_s=(0.99 * measured_s, 1.02 * measured_s),
        interval_s=(0.98 * measured_s, 1.02 * measured_s),
        losses=(2.3, 2.2),
        kinds=sums("kind", list(KINDS), [""]).assign(tasks=[1, 1, 1, 1]),
        layers=sums("layer", ["conv_1", "fc"], ["compute_", "communication_"]),
        edges=pd.DataFrame({"predicted_bytes": [1e6], "measured_bytes": [1e6]}),
        tasks=tasks,
        simulated=simulated,
        measured=measured,
    )


@pytest.fixture(scope="module")
def validation():
    return Validation(
        model="small</script><b>x",
        batch=32,
        cluster="lab",
        devices=DEVICES,
        stand_in=False,
        lab=True,
        strategies=(make_strategy("data", 0.5, 0.52), make_strategy("model", 0.4, 0.39)),
        refused={"spatial": "needs <more> memory"},
        environment={"torch": "2.x"},
        notes=("a note",),
    )


@pytest.fixture(scope="module")
def html(validation):
    return validation_html(validation)


def test_the_headline_says_how_far_off_it_is(validation):
    assert "within 3.8% of measurements, and in their measured order" in validation_headline(validation)
    wrong = replace(validation, strategies=(make_strategy("data", 0.5, 0.3), make_strategy("model", 0.4, 0.39)))
    assert "but not in their measured order" in validation_headline(wrong)
    alone = replace(validation, strategies=validation.strategies[:1])
    assert "−3.8% off the measured one: data" in validation_headline(alone)


def test_the_table_of_strategies_equals_the_data(validation, html):
    rows = parse(html).tables[0][1:]
    for strategy, (name, *cells) in zip(validation.strategies, rows, strict=True):
        exact = [*strategy.ladder_s.values(), *strategy.quartiles_s, 0.02, 9.0, strategy.error]
        assert name[0] == strategy.name
        assert [float(value) for _, value in cells] == pytest.approx(exact)
        assert cells[-2][0] == "9 in 3"


def test_tables_by_kind_and_layer_equal_the_data(validation, html):
    tables = parse(html).tables[2:]  # after the list of the longest tasks in view
    for i, strategy in enumerate(validation.strategies):
        for row, cells in zip(strategy.kinds.to_dict("records"), tables[i][1:], strict=True):
            assert cells[0][0] == row["kind"].replace("_", " ")
            assert [float(value) for _, value in cells[2:]] == [row["predicted_s"], row["measured_s"], row["error"]]
        layers = tables[len(validation.strategies) * 2 + i]
        for row, cells in zip(strategy.layers.to_dict("records"), layers[1:], strict=True):
            assert cells[0][0] == row["layer"]
            assert [float(value) for _, value in cells[1:]] == list(row.values())[1:]
        worst = tables[len(validation.strategies) + i][1]
        assert worst[0][0] == "conv_1 collective"
        assert float(worst[-1][1]) == pytest.approx(-0.3)


def test_the_ladder_draws_the_measurement_with_its_quartiles(validation, html):
    figure = json.loads(parse(html).texts["data"])["figures"]["ladder"]
    assert [trace["name"] for trace in figure["data"]] == list(validation.strategies[0].ladder_s)
    measured = figure["data"][-1]
    assert measured["x"] == pytest.approx([520, 390])
    assert measured["error_x"]["array"] == pytest.approx([10.4, 7.8])
    assert measured["error_x"]["arrayminus"] == pytest.approx([5.2, 3.9])


def test_every_task_of_both_timelines_is_on_the_page(validation, html):
    strategies = json.loads(parse(html).texts["data"])["strategies"]
    assert len(strategies) == len(validation.strategies) == 2
    for strategy in strategies:
        assert strategy["timeline"]["count"] == 8
        points = [trace for trace in strategy["tasks_figure"]["data"] if trace.get("mode") == "markers"]
        assert sum(len(trace["text"]) for trace in points) == 4


def test_notes_say_what_was_assumed(validation, html):
    assert "spatial was refused: needs <more> memory" in parse(html).texts["remarks"]
    notes = parse(html).texts["notes"]
    for words in ("taken between the turns by", "exactly the bytes", "network namespaces", "losses differ", "a note"):
        assert words in notes
    changed = replace(validation.strategies[0], edges=pd.DataFrame({"predicted_bytes": [1e6], "measured_bytes": [2e6]}))
    other = parse(validation_html(replace(validation, stand_in=True, lab=False, strategies=(changed,)))).texts["notes"]
    assert "only messages were real" in other
    assert "differ from those priced" in other


def test_the_page_refers_to_nothing_outside_itself(html):
    own = own_part(html)
    assert "</script><b>" not in own
    assert not re.search(r"https?://(?!www\.w3\.org/)", own)
    assert not re.search(r"\bsrc=|@import|url\(", own)


def test_a_failed_write_leaves_the_old_page_and_nothing_else(tmp_path, monkeypatch, validation):
    path = tmp_path / "page.html"
    path.write_text("old")

    def refuse(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_page(validation_html(validation), path)
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text() == "old"


def test_unknown_intervals_are_dashes(validation):
    few = replace(validation.strategies[0], interval_s=(-math.inf, math.inf), iterations_s=(0.52,))
    rows = parse(validation_html(replace(validation, strategies=(few,)))).tables[0]
    assert rows[1][7][0] == "–"


@pytest.mark.browser
@needs_chromium
def test_the_page_works_in_a_browser(tmp_path, validation):
    """Nothing fails, nothing is fetched, and the strategy chosen is the one shown."""
    path = tmp_path / "page.html"
    write_page(validation_html(validation), path)
    with chromium() as browser:
        page = opened_in(browser, path, viewport={"width": 1400, "height": 900})
        assert page.inner_text("#timeline-title").endswith("data")
        page.locator("label span", has_text="model").click()
        page.wait_for_selector("body[data-chosen='1']")
        assert page.inner_text("#timeline-title").endswith("model")
        page.fill("#search", "conv_1")
        page.press("#search", "Enter")
        details = page.inner_text("#details")
        for words in ("conv_1 forward", "host0/cpu simulated", "measured", "110 ms"):
            assert words in details, details
        for figure in ("ladder", "tasks"):
            assert page.locator(f"#{figure} .main-svg").count() > 0
        assert page.problems == []
        assert asked_for(page) == [page.address]


def test_speedups_by_compression_are_on_the_page(validation, html):
    assert 'id="speedups"' not in html
    plain, other = validation.strategies[:2]
    coded = replace(other, name="coded", plain=plain.name, compressed="gradients as linear")
    both = replace(validation, strategies=(plain, coded), stand_in=True)
    coded_html = validation_html(both)
    page, shown = parse(coded_html), coded_html.partition('id="speedups"')[2].partition("</table>")[0]
    for text in ("coded", "gradients as linear", f"{plain.measured_s / coded.measured_s:.2f}"):
        assert text in shown
    (row,) = both.speedups
    assert row.error == pytest.approx(row.predicted / row.measured - 1)
    assert "predicted by samples of the data types" in page.texts["notes"]
    waits = parse(validation_html(replace(both, stand_in_compression=True))).texts["notes"]
    assert "compression and decompression were waits too" in waits


def noisy(strategy):
    """The same medians, known to 330 %."""
    middle = strategy.measured_s
    return replace(strategy, interval_s=(0.1 * middle, 6.7 * middle))


def test_what_is_too_noisy_is_not_judged(validation):
    first, *others = validation.strategies
    some = replace(validation, strategies=(noisy(first), *others))
    assert validation_headline(some).endswith(f"Too noisy to judge: {first.name}.")
    rows = parse(validation_html(some)).tables[0][1:]
    assert [row[-1][0] == "too noisy to judge" for row in rows] == [True] + [False] * len(others)
    every = replace(validation, strategies=tuple(map(noisy, validation.strategies)))
    assert validation_headline(every).startswith("Too noisy to judge")
    assert "330%" in validation_headline(every)


def test_the_median_of_two_errors_lies_between_them(validation):
    html = validation_html(
        replace(validation, strategies=(make_strategy("a", 0.51, 0.5), make_strategy("b", 0.53, 0.5)))
    )
    assert re.search(r"<dt>median error</dt><dd>4\.0 ", html)
