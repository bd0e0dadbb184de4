"""Calibrations to one and two machines: what they are made of, and what judges them."""

import pytest

from hwprofiles.measured.measured_tables import measured_table
from studies.calibrate.library_fit import FittedLibrary
from studies.fidelity import calibrated_collectives
from studies.fidelity.calibrated_collectives import calibrated_rows
from studies.fidelity.collective_times import collective_rows
from studies.fidelity.fidelity_table import summarised
from studies.fidelity.judged_row import CALIBRATED_MEASURE


@pytest.fixture(scope="module")
def rows():
    """Rows by calibrations that change nothing, and the measurements that these were given."""
    given = []

    def unchanged(content, measured):
        given.append(measured)
        return FittedLibrary(dict(content), {}, {}, (), (), 0.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibrated_collectives, "fitted_library", unchanged)
        return list(calibrated_rows()), given


def test_rows_on_more_machines_are_judged_once_and_none_of_those_is_calibrated_to(rows):
    judged, given = rows
    table = measured_table("collectives")
    table = table[table.system.isin(["polaris", "abci-vnode"])]
    more = table.nodes > 2
    assert sorted(row.measured for row in judged) == pytest.approx(sorted(table.time_us[more] * 1e-6))
    assert len(given) == len(table.groupby(["system", "setting", "software"]))
    assert max(len(set(each.hosts)) for measured in given for each in measured) == 2
    assert sum(len(each.time_s) for measured in given for each in measured) == (~more).sum()


def test_a_calibration_that_changes_nothing_predicts_what_the_catalogue_does(rows):
    """Transports included: the fits begin where the comparisons without calibration are."""
    judged, _ = rows
    without = {(row.group, row.subject, row.size, row.measured): row for row in collective_rows()}
    for row in judged:
        assert row.predicted == pytest.approx(without[row.group, row.subject, row.size, row.measured].predicted)
        assert row.fitted == without[row.group, row.subject, row.size, row.measured].fitted
    notes = summarised([*judged, *without.values()]).notes
    (note,) = (text for text in notes if text.startswith(CALIBRATED_MEASURE))
    assert f"of {len(judged)} rows" in note
    assert note.endswith("worse than without: none")
