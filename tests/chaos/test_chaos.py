"""Faults of the campaigns: commands end with a reason or go on, and leave nothing broken."""

import sys

import pytest
from chaos.campaign import Campaign
from chaos.faults import ROOT, Fault
from chaos.keeper import Case
from chaos.serve_faults import disturbed

# What SIGTERM and Ctrl-C do to commands is in tests/orrery/test_signals.py and test_interrupts.py.
CASES = {
    "plan-clock": ("plan", "clock", (), 0.5),
    "compare-killed": ("compare", "signal", ("SIGKILL", "group"), 0.5),
    "compare-full-disk": ("compare", "disk", ("out",), 0.0),
    "compare-read-only": ("compare", "read-only", (), 0.0),
    "compare-file-size": ("compare", "file size", (), 0.0),
    "compare-folder-replaced": ("compare", "folder", ("out is a file",), 0.3),
    "oracle-worker-killed": ("oracle", "signal", ("SIGKILL", "one"), 0.7),
    "oracle-interrupted": ("oracle", "signal", ("SIGINT", "group"), 0.4),
    "run-terminated": ("run", "signal", ("SIGTERM", "command"), 1.5),
}
"""Command, kind of fault, its words, and the moment in seconds."""


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    return Campaign(tmp_path_factory.mktemp("chaos"), commands=())


@pytest.mark.timeout(120)
@pytest.mark.skipif(sys.platform != "linux", reason="finds and limits processes as Linux does")
@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("name", CASES)
def test_commands_outlive_faults(campaign, name):
    command, kind, words, at = CASES[name]
    fault = Fault(kind=kind, about=name, at=at, seed=1, words=words)
    if fault.needs_root and not ROOT:
        pytest.skip("mounts need root")
    assert (
        campaign.run(Case(seed=0, command=command, fault=fault, again=False, repeated=name == "compare-killed")) == []
    )


@pytest.mark.timeout(120)
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes as Linux does")
def test_a_workbench_outlives_its_clients_and_helpers(tmp_path):
    """Clients come and go, and SIGHUP ends it with all that it has started."""
    about, wrong = disturbed(6, tmp_path)
    assert (wrong, about.endswith("SIGHUP to all")) == ([], True)
