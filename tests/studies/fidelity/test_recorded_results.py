"""What counts as worse than recorded."""

import json

import pytest
from fidelity_rows import make_table

from groundwork.errors import ConfigError
from planner.expected.likely_times import BETWEEN, COMPUTATION, INSIDE, OVERLAP, RECORDED, recorded_errors
from studies.fidelity.judged_row import MEASURES
from studies.fidelity.recorded_results import read_recorded, recorded_text, worse_lines


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "recorded.json"
    path.write_text(recorded_text(make_table()))
    return path


def test_what_was_recorded_is_not_worse(recorded):
    assert worse_lines(make_table(), read_recorded(recorded)) == []


def test_worse_predictions_have_a_line_each(recorded):
    """Predictions of one kind become 20 % longer: their measures and comparisons are named, and no others."""
    lines = worse_lines(make_table(slower=1.2), read_recorded(recorded))

    assert lines
    mine = [measure.name for measure in MEASURES if measure.kind == "one-gpu"]
    assert all(any(name in line for name in [*mine, "computation", "whole"]) for line in lines)
    assert any(line.startswith("training on one GPU: ") and "was" in line and "now" in line for line in lines)


def test_missing_rows_are_worse_where_all_was_computed(recorded):
    fewer = make_table(rows=5)

    assert any("rows had a prediction, now" in line for line in worse_lines(fewer, read_recorded(recorded)))
    gone = make_table(groups=3)
    assert any("now none are" in line for line in worse_lines(gone, read_recorded(recorded)))
    assert not any("now none are" in line for line in worse_lines(gone, read_recorded(recorded), only="one-gpu"))


def test_broken_files_are_refused_in_one_line(recorded):
    recorded.write_text(json.dumps({"measures": 3}))
    with pytest.raises(ConfigError, match=r"recorded results .*measures") as error:
        read_recorded(recorded)
    assert "\n" not in str(error.value)


def test_the_file_that_ships_has_what_intervals_need():
    shipped = read_recorded(RECORDED)

    assert {COMPUTATION, *INSIDE.values(), *BETWEEN.values(), OVERLAP} <= set(recorded_errors())
    assert sum(each.rows for each in shipped.measures) == sum(each.rows for each in shipped.comparisons) > 1000


def test_recorded_comparisons_have_names_of_their_own():
    """What was recorded is found by name: two comparisons of one name would be taken for one another."""
    recorded = read_recorded(RECORDED)
    names = [each.name for each in (*recorded.measures, *recorded.comparisons)]
    assert len(set(names)) == len(names)
