"""The first cases of the campaign; those that it found are in ``tests/orrery/test_hostile_input.py``."""

import subprocess
import sys
from pathlib import Path

import pytest

CASES = 40
"""As many as take some seconds; ``make fuzz`` runs 20,000."""


@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory and time of processes as Linux does")
def test_spoiled_inputs_end_in_one_line(warm_programs):
    """In a process of its own, as each case is charged with the memory of the process that it is forked from."""
    campaign = [warm_programs / "python", Path(__file__).with_name("campaign.py"), str(CASES), "0"]
    ended = subprocess.run(campaign, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{CASES // 2} cases, 0 failed" in ended.stdout
