"""Power limits of boards, by the profiles of devices."""

import pytest

from groundwork.input_files import yaml_input
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from studies.size import training


@pytest.mark.parametrize("arithmetic", ["", "@float32", "@float16"])
def test_the_limit_is_that_of_the_board_in_every_arithmetic(arithmetic):
    """Eight boards of the file's watts."""
    row = yaml_input(training._FILE, "power limits")["v100-16gb"]
    cluster = load_cluster(f"p100-4x4:nodes=2,device.*.profile=v100-16gb{arithmetic}")
    profiles = [device.profile for device in cluster.devices]
    assert training.board_power_w(profiles) == 8 * row["watts"]
    assert training.power_sources(profiles) == [row["source"]]


def test_one_unknown_board_leaves_the_sum_unknown():
    assert training.board_power_w(["p100", "other@float16"]) is None
    assert training.power_sources(["p100@float16", "other", "p100"])[0].startswith("NVIDIA Tesla P100")
