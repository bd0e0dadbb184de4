"""The first cases of the campaign, and every case that was found: one line, in time, nothing changed."""

import sys

import pytest
from campaign import campaign, case_in, outcome
from inputs import make_samples

CASES = 300
"""As many as take half a minute; ``make fuzz`` runs 20,000."""
FOUND = (1184, 1655, 1687, 1732, 2627, 3079, 3798, 3845, 13062, 13307)
"""Seeds of cases that once ended in another way."""


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    make_samples(folder)
    return folder


@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory and time of processes as Linux does")
def test_spoiled_inputs_end_in_one_line(samples):
    assert campaign(range(CASES), samples) == []


@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory and time of processes as Linux does")
@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_stays_mended(samples, tmp_path, seed):
    case = case_in(tmp_path / "here", samples, seed)
    wrong, _ = outcome(case, tmp_path / "here")
    assert wrong == [], str(case)
