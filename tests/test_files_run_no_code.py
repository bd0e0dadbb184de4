"""Files never run code: plans, sweeps and scenarios that name a function are refused before it is looked for."""

import json

import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan
from studies.sweep.sweep_file import read_sweep
from studies.whatif.scenario_file import read_scenarios

CODE = "traitor:build@1x8x8"


@pytest.fixture
def traitor(tmp_path, monkeypatch):
    """A module in the working folder that leaves a mark where it runs."""
    (tmp_path / "traitor.py").write_text("open('ran', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / "ran").exists()


def test_plans_do_not(traitor):
    plan = make_plan(load_model("lenet5", batch=8), load_cluster("titanx-4"), strategy="data")
    save_plan(plan, traitor / "plan.json")
    content = json.loads((traitor / "plan.json").read_text())
    (traitor / "plan.json").write_text(json.dumps({**content, "model": CODE}))
    with pytest.raises(ConfigError, match=r"plan file .*: model must not be code, which files never run"):
        load_plan(traitor / "plan.json")


def test_sweeps_do_not(traitor):
    (traitor / "sweep.yaml").write_text(
        f"version: 1\nname: s\nmodels: ['{CODE}']\nclusters: [titanx-4]\nbatch: [8]\nstrategies: [data]\n"
    )
    with pytest.raises(ConfigError, match="model must not be code"):
        read_sweep(traitor / "sweep.yaml")


def test_scenarios_do_not(traitor):
    (traitor / "scenarios.yaml").write_text(
        f"version: 1\nmodel: '{CODE}'\ncluster: titanx-4\nbatch: 8\nscenarios: {{slow: {{nodes: 4}}}}\n"
    )
    with pytest.raises(ConfigError, match=r"scenario file .*: model must not be code"):
        read_scenarios(traitor / "scenarios.yaml")
