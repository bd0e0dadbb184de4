"""The page of a paper shows every printed value, the farthest first, and says how many come out."""

import math

import pytest
from test_comparison_page import parse

from reports.pages.paper_pages import reproduce_html
from reports.tables.reproduced_values import reproduced_headline, reproduced_values
from studies.reproduce.rows import row

ROWS = [
    row("P, Table 1: near", "100", 104.0, "ms"),
    row("P, Table 1: far", "2", 3.0, "x", "another <machine>"),
    row("P, Fig. 2: range", "1.0-2.0", "1.0-2.2", "x"),
    row("P, Fig. 2: words", "n 4", "n 4", "config"),
    row("P, Fig. 2: other words", "n 4", "n 2", "config"),
]


def test_errors_are_those_of_the_numbers():
    values = reproduced_values(ROWS)
    assert [each.claim for each in values] == ["other words", "far", "range", "near", "words"]
    assert [each.error for each in values] == pytest.approx([math.inf, 0.5, 0.1, 0.04, 0.0])
    assert [each.point for each in values if each.point] == [(2.0, 3.0), (100.0, 104.0)]
    assert (values[1].difference, values[1].note) == ("+50%", "another <machine>")


def test_the_headline_counts_what_comes_out():
    said = reproduced_headline("p", reproduced_values(ROWS))
    assert said.startswith("p: 2 of 5 printed values come out within 5%, half of them within 10%")
    assert "farthest is far: printed 2, ours 3 x" in said


def test_the_page_has_a_row_for_every_value_with_its_note():
    html = reproduce_html("p", ROWS)
    rows = parse(html).tables[0][1:]
    assert [cells[0][0] for cells in rows] == ["other words", "far", "range", "near", "words"]
    assert "another &lt;machine&gt;" in html
