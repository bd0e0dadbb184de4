"""The terminal says what the comparison holds."""

import dataclasses
import io

import pytest
from rich.console import Console
from synthetic_comparison import NAMES, make_comparison

from reports.style.units import three_digits
from reports.tables.comparison_summary import comparison_headline, comparison_table


def test_the_table_prints_every_strategy_and_marks_the_fastest():
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(comparison_table(make_comparison()))
    lines = console.export_text().splitlines()
    rows = {name: next(line for line in lines if f" {name} " in line) for name in NAMES}
    assert [name for name in NAMES if "★" in rows[name]] == ["layerwise"]
    fastest = make_comparison().strategies[NAMES.index("layerwise")]
    low, high = (1e3 * each for each in fastest.likely_s)
    expected_ms, rate = 1e3 * fastest.expected_s, three_digits(512 / fastest.expected_s)
    for expected in (f"{expected_ms:.3g} ", f"{low:.3g} to {high:.3g}", "123 ", rate, "3.21", "100 "):
        assert expected in rows["layerwise"]
    assert {"additive [ms]", "moved [GB]", "peak memory [GiB]"} <= {
        c.header.plain for c in comparison_table(make_comparison()).columns[1:]
    }


def test_the_headline_answers_with_time_and_ratios():
    comparison = make_comparison()
    fastest = comparison.strategies[NAMES.index("layerwise")]
    low, high = fastest.likely_s
    ratios = [each.expected_s / fastest.expected_s for each in comparison.strategies]
    assert comparison_headline(comparison) == (
        "layerwise is the fastest way to train vgg16 on p100-4x4 (16 devices), batch 512: "
        f"{1e3 * fastest.expected_s:.3g} ms an iteration "
        f"(likely {low * 1e3:.3g} to {high * 1e3:.3g} ms; simulated 123 ms), "
        f"{three_digits(512 / fastest.expected_s)} images/s – "
        f"{ratios[0]:.2f}× as fast as data, {ratios[1]:.2f}× model, {ratios[2]:.2f}× owt and {ratios[3]:.2f}× spatial."
    )


def test_strategies_that_are_as_fast_are_named_together():
    comparison = make_comparison()
    fastest = next(s for s in comparison.strategies if s.name == "layerwise")
    rows = [dataclasses.replace(fastest, name=s.name) if s.name == "data" else s for s in comparison.strategies]
    found = comparison_headline(dataclasses.replace(comparison, strategies=tuple(rows)))
    assert found.startswith("layerwise and data are the fastest ways to train vgg16 on p100-4x4 (16 devices)")
    ratios = {s.name: f"{s.expected_s / fastest.expected_s:.2f}×" for s in comparison.strategies}
    told = f"images/s – {ratios['model']} as fast as model, {ratios['owt']} owt and {ratios['spatial']} spatial."
    assert found.endswith(told)


@pytest.mark.parametrize(
    ("names", "ending"),
    [((), "No strategy can run vgg16 on p100-4x4 (16 devices), batch 512."), (("data",), "images/s.")],
)
def test_the_headline_of_few_strategies(names, ending):
    assert comparison_headline(make_comparison(names=names)).endswith(ending)


def test_without_a_named_winner_the_fastest_wins():
    comparison = dataclasses.replace(make_comparison(), winner="")
    assert comparison_headline(comparison).startswith("layerwise ")
