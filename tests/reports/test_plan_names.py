"""Long names of plans are broken at commas and stay whole; short ones are left as they are."""

from itertools import pairwise

from hypothesis import given, strategies as st
from synthetic_comparison import make_comparison

from reports.figures.comparison import plain_ladder
from reports.style.plan_names import broken_name, plan_ticks

LONG = "pipeline=4,schedule=interleaved,micro-batches=8,recompute=segments"


@given(st.lists(st.sampled_from(["data", "pipeline=4", "schedule=interleaved", "recompute=segments"]), min_size=1))
def test_breaks_are_behind_commas_alone(words):
    name = ",".join(words)
    lines = broken_name(name, "|").split("|")

    assert "".join(lines) == name
    assert all(line.endswith(",") for line in lines[:-1])
    assert all(len(line) <= 33 for line in lines)
    assert all(len(a) + len(b.split(",")[0]) >= 32 for a, b in pairwise(lines))


def test_axes_show_broken_names_where_there_is_a_long_one():
    assert plan_ticks(["data", "owt"]) == {}
    assert "tickvals" not in plain_ladder(make_comparison(names=("data", "owt")))["layout"]["yaxis"]
    axis = plain_ladder(make_comparison(names=("data", LONG)))["layout"]["yaxis"]

    assert axis["tickvals"] == ["data", LONG]
    assert axis["ticktext"] == ["data", "pipeline=4,schedule=interleaved,<br>micro-batches=8,<br>recompute=segments"]
