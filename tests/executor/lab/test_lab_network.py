"""Runs over two hosts with two networks each: only ranks with the secret meet, and only the named network is used."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from lab_network import REFUSES, SECOND, TRAINS

from executor.lab.inside import run_inside
from executor.lab.tools import require_lab
from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import save_plan


def obstacle():
    try:
        require_lab()
    except ConfigError as error:
        return str(error)
    return ""


pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "a lab can be made"),
    pytest.mark.timeout(400),
]
CLUSTER, ADDRESSES, TOLD_S = "lab-4:nodes=2", ("10.77.0.1", "10.77.0.2"), 60
EVERYWHERE = "::"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("network")
    plan = make_plan(load_model("lenet5", batch=16), load_cluster(CLUSTER), strategy="data")
    save_plan(replace(plan, request=replace(plan.request, cluster=CLUSTER)), folder / "plan.json")
    script = Path(__file__).parents[1] / "lab_network.py"
    assert run_inside([sys.executable, str(script), "lab-2x2", str(folder)]) == 0
    return json.loads((folder / "report.json").read_text())


@pytest.mark.parametrize("name", ["direct", "torchrun"])
def test_ranks_with_one_secret_train(report, name):
    """With the interface named, and with the one that leads to the address where they meet."""
    ran = report[f"{name} {TRAINS}"]

    assert ran["codes"] == [0, 0], ran["errors"]
    assert "loss last" in ran["out"][0]
    assert ran["lines"] == [[], []]


@pytest.mark.parametrize("name", ["direct", "torchrun"])
def test_ranks_with_two_secrets_end_with_one_line_on_each_machine(report, name):
    ran = report[f"{name} {REFUSES}"]

    assert ran["codes"] == ([2, 2] if name == "direct" else [1, 1]), ran["errors"]
    for rank, lines in enumerate(ran["lines"]):
        assert len(lines) == 1, ran["errors"]
        assert lines[0].startswith("orrery: secret_file must be the same for all ranks: ")
        assert f"of rank {1 - rank} in the store" in lines[0]
    assert ran["took_s"] < TOLD_S


def test_a_rank_without_the_secret_is_told_by_its_supervisor(report):
    """Neither rank hears of the other; their heartbeats show why."""
    ran = report["one secret"]

    assert ran["codes"] == [1, 1]
    assert [len(lines) for lines in ran["lines"]] == [1, 1], ran["errors"]
    assert "the heartbeat of rank 1 in the store where they meet has no signature" in ran["lines"][0][0]
    assert "one has written what this one, without a secret, cannot read" in ran["lines"][1][0]
    assert ran["took_s"] < TOLD_S


def test_ranks_and_their_store_listen_in_one_network(report):
    """Sockets are seen while they train; the second network has none, and none is open everywhere."""
    ran = report[f"direct {TRAINS}"]

    for rank, rows in enumerate(ran["listened"]):
        assert {address for address, _ in rows} == {ADDRESSES[rank]}
    assert [ADDRESSES[0], ran["port"]] in ran["listened"][0]


def test_the_store_of_torchrun_is_all_that_listens_everywhere(report):
    ran = report[f"torchrun {TRAINS}"]

    for rank, rows in enumerate(ran["listened"]):
        everywhere = [[EVERYWHERE, ran["port"]]] if rank == 0 else []
        assert [row for row in rows if row[0] != ADDRESSES[rank]] == everywhere
        assert len(rows) > len(everywhere)


def test_another_network_than_that_where_they_meet_is_refused(report):
    ran = report["wrong interface"]

    line = f"orrery: interface must be the one towards MASTER_ADDR '10.77.0.1', here 'eth0'; got '{SECOND}'"
    assert (ran["codes"], ran["lines"]) == ([2, 2], [[line], [line]])
    assert ran["listened"] == [[], []]
