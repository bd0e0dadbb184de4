"""Plans on meshes: files say each mesh once, and what they hold is read, simulated and used as a strategy again."""

import json

import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan
from planner.simulation.program_replay import replay
from planner.strategies.named_strategies import named_strategy


def test_a_plan_file_says_its_mesh_once(tmp_path):
    graph, cluster = load_model("bert-base", batch=8), load_cluster("dgx-a100")
    plan = make_plan(graph, cluster, strategy="data=2,tensor=4,sequence")
    save_plan(plan, tmp_path / "plan.json")
    content = json.loads((tmp_path / "plan.json").read_text())
    assert content["meshes"] == [{"axes": [["data", 2], ["tensor", 4]], "devices": list(range(8))}]
    again = load_plan(tmp_path / "plan.json")
    assert again.configurations == plan.configurations
    assert replay(lower_plan(again, graph, cluster)).iteration_s == plan.simulated_s
    assert named_strategy(str(tmp_path / "plan.json"), graph, 8) == plan.configurations


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mesh": 1}, "must name one of 1 meshes"),
        ({"splits": ["sample"]}, "a split of each of its axes"),
        ({"splits": ["sample", "chanel"]}, r"configurations.fc1.splits must be of sample, .* did you mean 'channel'"),
        ({"splits": ["sample", ""]}, "got ''"),
        ({"splits": ["sample", "height"]}, "height is not one of its parallelizable dimensions"),
        ({"devices": [0]}, "devices must be left out beside mesh"),
    ],
)
def test_rows_on_a_mesh_with_mistakes(tmp_path, change, message):
    row = {"mesh": 0, "splits": ["sample", None]} | change
    content = {"meshes": [{"axes": [["data", 2], ["tensor", 2]], "devices": [0, 1, 2, 3]}]}
    content["configurations"] = {"default": {"mesh": 0, "splits": ["sample", None]}, "fc1": row}
    (tmp_path / "mine.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=message):
        named_strategy(str(tmp_path / "mine.json"), load_model("lenet5", batch=8), 4)
