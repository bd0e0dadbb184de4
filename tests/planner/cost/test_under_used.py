"""Prices under 5 % of the peak and of the bandwidth are named; all others are not."""

import yaml

from hwprofiles.compute.profile_file import catalogue
from hwprofiles.devices.device import Device
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.cost_model import CostModel
from planner.cost.under_used import under_used_layers
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.strategies.named_strategies import named_strategy


def one_device(profile):
    return DeviceGraph("one", (Device(name="gpu0", node=0, profile=str(profile), memory_bytes=2**36),), (), ())


def slow_profile(path, share):
    """P100 whose weight gradients of convolutions reach no more than a share of the peak."""
    content = yaml.safe_load(catalogue()["p100"].read_text())
    content.pop("kernels")
    content["convolution"]["ceiling"]["weight_gradient"] = share
    path.write_text(yaml.safe_dump(content))
    return path


def test_layers_priced_as_naive_kernels_are_named(tmp_path):
    graph = load_model("vgg11", batch=16)
    for share, expected in ((0.02, True), (0.5, False)):
        cluster = one_device(slow_profile(tmp_path / f"slow-{share}.yaml", share))
        layers = under_used_layers(CostModel(graph, cluster), named_strategy("data", graph, 1))

        assert bool(layers) is expected
        assert all(name.endswith("weight gradient") for name in layers)


def test_the_plan_says_so_in_one_line(tmp_path):
    cluster = one_device(slow_profile(tmp_path / "slow.yaml", 0.02))
    notes = make_plan(load_model("vgg11", batch=16), cluster, strategy="data").notes

    assert len(notes) == 1
    assert notes[0].startswith("priced under 5% of the peak and of the memory bandwidth: conv")
    assert "conv5_2 weight gradient; measure them" in notes[0]
    usual = make_plan(load_model("vgg11", batch=16), one_device("p100"), strategy="data").notes
    assert not any(note.startswith("priced under") for note in usual)


def test_a_kernel_that_waits_for_its_launch_is_not_doubtful():
    graph = load_model("lenet5", batch=2)
    assert under_used_layers(CostModel(graph, one_device("p100")), named_strategy("data", graph, 1)) == ()
