"""Files of scenarios: composition, and one line for what breaks a rule."""

import pytest

from groundwork.errors import ConfigError
from studies.whatif.scenario_file import read_scenarios

HEAD = "version: 1\nmodel: lenet5\ncluster: p100-4x4:nodes=2\nbatch_per_device: 8\nscenarios:\n"


def read(tmp_path, text):
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return read_scenarios(path)


def test_scenarios_build_on_one_another(tmp_path):
    """Bases come in order, own changes last; those of one name replace each other."""
    found = read(
        tmp_path,
        HEAD
        + "  slow: {link.edr.bandwidth_factor: 0.5, nodes: 4}\n"
        + "  switch: {nodes.*.switches.gpus_per_port: 4}\n"
        + "  both: {from: [slow, switch], nodes: 8, batch: 32}\n"
        + "  other: {from: switch, device.*.profile: v100-16gb}\n",
    )
    assert (found.model, found.batch, found.strategies) == ("lenet5", 64, ("data",))
    changes = {scenario.name: (scenario.changes, scenario.batch) for scenario in found.scenarios}
    assert changes["both"] == (
        ("link.edr.bandwidth_factor=0.5", "nodes=8", "nodes.*.switches.gpus_per_port=4"),
        32,
    )
    assert changes["other"] == (("nodes.*.switches.gpus_per_port=4", "device.*.profile=v100-16gb"), None)


def test_a_strategy_that_is_named_again_is_planned_once(tmp_path):
    found = read(tmp_path, "strategies: [data, owt, data]\n" + HEAD + "  more: {nodes: 4}\n")
    assert found.strategies == ("data", "owt")


def test_the_all_reduce_is_that_of_the_command_unless_it_is_named(tmp_path):
    one = HEAD + "  same: {nodes: 2}\n"
    assert read(tmp_path, one).options["gradient_sync"] is None
    assert read(tmp_path, "gradient_sync: tree\n" + one).options["gradient_sync"] == "tree"
    assert read(tmp_path, "dtype: bfloat16\nspread: false\n" + one).options == {
        "gradient_sync": None,
        "dtype": "bfloat16",
        "framework": None,
        "software": "ideal",
        "interference": None,
        "spread": False,
    }
    with pytest.raises(ConfigError, match=r"gradient_sync: must be 'ring', .*got 'rign'"):
        read(tmp_path, "gradient_sync: rign\n" + one)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            HEAD
            + "  a: {link.edr.bandwidth_factor: 0.5}\n  b: {link.edr.bandwidth_factor: 0.8}\n  c: {from: [a, b]}\n",
            "scenarios.c must set link.edr.bandwidth_factor itself, for a has 0.5 and b has 0.8",
        ),
        (HEAD + "  a: {from: b}\n", "scenarios.a.from must name another scenario, got 'b'"),
        (HEAD + "  a: {from: b}\n  b: {from: a}\n", "scenarios.a must not build on itself, got a -> b -> a"),
        (HEAD + "  a: {nodes: [1]}\n", r"scenarios.a.nodes must be a number or a word without commas, got \[1\]"),
        (HEAD + "  a: {device.*.profile: 'x,nodes=9'}\n", "must be a number or a word without commas"),
        (HEAD + "  a: {batch: 0}\n", "scenarios.a.batch must be a whole number >= 1, got 0"),
        (HEAD + "  today: {nodes: 1}\n", "scenarios.today must have another name"),
        (HEAD.replace("scenarios:\n", "scenarios: {}\n"), "scenarios"),
        (HEAD.replace("batch_per_device: 8", "batch: 8\nbatch_per_device: 8") + "  a: {nodes: 1}\n", "got both"),
        (HEAD.replace("model", "modle") + "  a: {nodes: 1}\n", "did you mean 'model'"),
    ],
)
def test_bad_files_name_the_rule(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, text)
