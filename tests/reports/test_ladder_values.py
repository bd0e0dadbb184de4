"""The ladder as plain values is the figure that Plotly makes of it."""

from dataclasses import replace

from synthetic_comparison import make_comparison

from reports.figures.comparison import ladder_figure, plain_ladder
from reports.pages.page_template import plain_figure


def test_plain_values_are_those_of_the_figure():
    """Plotly checks every name and value; a rung that one strategy lacks is a gap in its row."""
    made = make_comparison()
    first = made.strategies[0]
    last = list(first.ladder_s)[-1]
    lacking = replace(first, ladder_s={name: each for name, each in first.ladder_s.items() if name != last})
    for comparison in (made, replace(made, strategies=(lacking, *made.strategies[1:]))):
        assert plain_figure(ladder_figure(comparison)) == plain_ladder(comparison)
    assert plain_ladder(comparison)["data"][-1]["x"][0] is None
