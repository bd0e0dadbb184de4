"""The first cases of the campaign; those that it found are in ``tests/orrery/test_hostile_input.py``."""

import sys

import pytest
from campaign import campaign
from inputs import make_samples

CASES = 300
"""As many as take half a minute; ``make fuzz`` runs 20,000."""


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    make_samples(folder)
    return folder


@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory and time of processes as Linux does")
def test_spoiled_inputs_end_in_one_line(samples):
    assert campaign(range(CASES), samples) == []
