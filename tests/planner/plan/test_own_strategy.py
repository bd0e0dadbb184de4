"""Strategies that programs give: the same plans as from files and rules, and one line for what is wrong."""

import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan

GRAPH, CLUSTER = load_model("lenet5", batch=64), load_cluster("titanx-4")
DATA = {"degrees": {"sample": 4}}


def owt(layer, cluster):
    split, degree = {"fc1": ("channel", 4), "fc2": ("channel", 2)}.get(layer.name, ("sample", len(cluster.devices)))
    return {"degrees": {split: degree}, "devices": range(degree)}


@pytest.mark.parametrize("form", ["mapping", "configurations", "function", "file", "plan file"])
def test_every_form_gives_the_plan_of_the_rule(form, tmp_path):
    rule = make_plan(GRAPH, CLUSTER, strategy="owt")
    path = tmp_path / ("s.json" if form == "plan file" else "s.yaml")
    path.write_text(
        "configurations: {default: {degrees: {sample: 4}}, fc1: {degrees: {channel: 4}}, fc2: {degrees: {channel: 2}}}"
    )
    if form == "plan file":
        save_plan(rule, path)
    given = {
        "mapping": {"default": DATA, "fc1": {"degrees": {"channel": 4}}, "fc2": {"degrees": {"channel": 2}}},
        "configurations": rule.configurations,
        "function": owt,
        "file": path,
        "plan file": path,
    }[form]
    plan = make_plan(GRAPH, CLUSTER, strategy=given)

    assert plan.configurations == rule.configurations
    assert plan.simulated_s == rule.simulated_s
    save_plan(plan, tmp_path / "kept.json")
    assert load_plan(tmp_path / "kept.json").configurations == rule.configurations


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"default": DATA, "fc9": DATA}, "strategy: lenet5 has no layer 'fc9'; did you mean 'fc"),
        ({"conv1": DATA}, "strategy: configurations.pool1 must have degrees, got None"),
        ({"default": {"degrees": {"sample": 0}}}, "degrees must be integers >= 1, got"),
        ({"default": {"degrees": {"sample": 8}}}, "8"),
        (lambda layer, cluster: 4, "strategy: configurations.conv1 must have degrees, got 4"),
    ],
)
def test_what_is_wrong_is_named(given, message):
    with pytest.raises(ConfigError, match=message):
        make_plan(GRAPH, CLUSTER, strategy=given)
