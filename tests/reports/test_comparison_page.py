"""The page shows the comparison's own numbers, needs nothing but itself, and is written whole."""

import dataclasses
import json
import os
import re
from html.parser import HTMLParser

import pytest
from browsing import own_part
from synthetic_comparison import NAMES, make_comparison
from test_timeline_page import data_of, unpacked

from reports.pages.comparison_page import comparison_html, write_comparison_page


class Tables(HTMLParser):
    """Collects, per table, the rows of (text, data-value), and the text of elements with an id."""

    def __init__(self):
        super().__init__()
        self.tables, self.texts, self.open_id, self.cell = [], {}, None, None

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.cell = ["", attrs.get("data-value")]
            self.tables[-1][-1].append(self.cell)
        if "id" in attrs and tag in ("h1", "ul", "script"):
            self.open_id = attrs["id"]

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.cell = None
        elif tag in ("h1", "ul", "script"):
            self.open_id = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell[0] += data
        if self.open_id:
            self.texts[self.open_id] = self.texts.get(self.open_id, "") + data


def parse(html):
    tables = Tables()
    tables.feed(own_part(html) if 'id="plotly"' in html else html)
    return tables


@pytest.fixture(scope="module")
def comparison():
    return make_comparison(refused={"channel": "fc8 needs 21.4 GiB, <node0> has 16.0 GiB"})


@pytest.fixture(scope="module")
def html(comparison):
    return comparison_html(comparison)


def test_the_comparison_table_equals_the_data(comparison, html):
    rows = parse(html).tables[0][1:]
    for strategy, (name, *cells) in zip(comparison.strategies, rows, strict=True):
        likely = cells.pop(4)
        exact = [strategy.speedup, strategy.samples_per_s, strategy.rates.mfu]
        exact += [strategy.expected_s, strategy.simulated_s]
        exact += [strategy.additive_s]
        exact += [strategy.moved_bytes, strategy.exposed_communication_s]
        exact += [max(strategy.peak_memory_bytes), strategy.lower_bound_s]
        units = [1, 1, 1e-2, 1e-3, 1e-3, 1e-3, 1e9, 1e-3, 2**30, 1e-3]
        assert name[0] == strategy.name
        assert [float(value) for _, value in cells] == exact
        assert [
            float(text.replace(",", "")) * unit for (text, _), unit in zip(cells, units, strict=True)
        ] == pytest.approx(exact, rel=5e-3)
        low, high = (float(end.replace(",", "")) * 1e-3 for end in likely[0].split(" to "))
        assert (low, high) == pytest.approx(strategy.likely_s, rel=5e-3)


def test_the_ladder_table_equals_the_data(comparison, html):
    rows = parse(html).tables[1][1:]
    assert [[float(value) for _, value in row[1:]] for row in rows] == [
        list(s.ladder_s.values()) for s in comparison.strategies
    ]


def test_every_layer_of_every_strategy_has_its_row(comparison, html):
    tables = parse(html).tables[-len(NAMES) :]
    for strategy, table in zip(comparison.strategies, tables, strict=True):
        for layer, cells in zip(strategy.layers, table[1:], strict=True):
            assert [cells[0][0], cells[1][0], cells[2][0]] == [layer.name, layer.kind, layer.output]
            assert int(cells[4][0]) == len(layer.devices)
            terms = [layer.compute_s, layer.gradient_sync_s, layer.transfer_s, layer.moved_bytes]
            assert [float(value) for _, value in cells[6:-1]] == terms
            assert cells[-1][0] == (layer.gradient_sync.replace(", ", "", 1) or "–")


def test_the_drawn_parts_add_up_to_the_simulated_time(comparison, html):
    figure = json.loads(parse(html).texts["data"])["figures"]["breakdown"]
    parts = [trace["x"] for trace in figure["data"][:3]]
    assert [sum(x) / 1e3 for x in zip(*parts, strict=True)] == pytest.approx(
        [s.simulated_s for s in comparison.strategies]
    )


def test_whiskers_are_the_likely_times(comparison, html):
    figure = json.loads(parse(html).texts["data"])["figures"]["breakdown"]
    drawn = {t["y"][0]: (t["x"][0], t["error_x"]) for t in figure["data"] if "error_x" in t}

    for strategy in comparison.strategies:
        median, ends = drawn[strategy.name]
        low, high = median - ends["arrayminus"][0], median + ends["array"][0]
        assert (low / 1e3, median / 1e3, high / 1e3) == pytest.approx(
            (strategy.likely_s[0], strategy.expected_s, strategy.likely_s[1])
        )


def test_strategies_within_the_errors_are_named(comparison):
    """A strategy that is a thousandth slower cannot be told apart; one that takes three times as long can."""
    best = next(s for s in comparison.strategies if s.name == "layerwise")

    def slower(name, times):
        total_s = times * best.simulated_s
        parts = dataclasses.replace(best.time_parts, total_s=total_s)
        return dataclasses.replace(best, name=name, simulated_s=total_s, time_parts=parts)

    strategies = best, slower("near", 1.001), slower("far", 3.0)
    found = comparison_html(dataclasses.replace(comparison, strategies=strategies))

    assert "layerwise and near cannot be told apart" in parse(found).texts["remarks"]
    assert "far cannot" not in found


def test_refusals_and_notes_are_told_and_escaped(html):
    assert "channel was refused: fc8 needs 21.4 GiB, <node0> has 16.0 GiB" in parse(html).texts["remarks"]
    assert "<node0>" not in html
    assert "calibrated roofline" in parse(html).texts["remarks"]


def test_names_cannot_end_the_script(comparison):
    strategy = dataclasses.replace(comparison.strategies[0], name="</script><b>x")
    html = comparison_html(dataclasses.replace(comparison, strategies=(strategy,), winner=strategy.name))
    assert "</script><b>" not in html


def test_the_page_refers_to_nothing_outside_itself(html):
    own = own_part(html)
    assert not re.search(r"https?://(?!www\.w3\.org/)", own)
    assert not re.search(r"\bsrc=|@import|url\(", own)


@pytest.mark.parametrize("names", [(), ("data",)])
def test_few_strategies_make_a_page_too(names):
    assert ("<table" in comparison_html(make_comparison(names=names, refused={"owt": "too large"}))) == bool(names)


def test_a_failed_write_leaves_the_old_page_and_nothing_else(tmp_path, monkeypatch, comparison):
    path = tmp_path / "page.html"
    path.write_text("old")

    def refuse(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_comparison_page(comparison, path)
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text() == "old"


def test_five_strategies_of_20k_tasks_stay_small(tmp_path):
    write_comparison_page(make_comparison(tasks=20_000, devices=96), tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 15e6
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_rows_of_a_replica_say_how_many_they_stand_for(comparison):
    first, second, *others = comparison.strategies
    alike = (128,) * (len(comparison.devices) - 1) + (1,)
    shown = dataclasses.replace(comparison, strategies=(dataclasses.replace(first, alike=alike), second, *others))
    folded, plain, *_ = data_of(comparison_html(shown))["strategies"]
    devices, known = (unpacked(each["timeline"]["columns"]["devices"]) for each in (folded, plain))
    assert devices == [*(f"{name} (one of 128 alike)" for name in known[:-1]), known[-1]]
