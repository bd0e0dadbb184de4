"""Partial sums as they are measured: their parts, what profiles keep of them, and plans priced by it."""

import pytest

from executor.probe.parts_to_measure import divided_parts, measured_names, strategy_parts
from executor.probe.probe_run import probe
from executor.probe.probe_settings import ProbeSettings
from executor.runtime.devices import CpuDevice
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.supervision.status_board import own_status
from executor.validation.part_samples import PartSamples
from executor.validation.prediction import with_samples
from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.compute.profile_file import load_profile
from planner.cost.cost_model import CostModel
from planner.lowering.program import KINDS
from planner.models.registry import load_model
from planner.parallel.strategies import named_strategy
from planner.plan.lowered_plan import lowered
from planner.plan.make_plan import make_plan


def test_slices_are_measured_beside_whole_layers():
    graph = load_model("lenet5", batch=8)
    (own, plain), (split, slices) = divided_parts(graph, ["filter", "channel"], 2, most=100)
    assert own is graph
    assert [part.sizes for part in plain] == [part.sizes for part in strategy_parts(graph, ["filter"], 2, most=100)]
    assert split.undivided is graph
    names = [name for part in slices for name in measured_names(split, part)]
    pieces = [("conv2", "conv2 sum"), ("fc1", "fc1 sum"), ("fc2", "fc2 sum")]
    assert names == [name for product, total in pieces for name in (f"{product}, in_channel 2", total)]
    assert slices[0].sizes == (8, 50, 1, 8, 8)
    assert divided_parts(graph, ["data"], 2, most=100)[0][0] is graph
    with pytest.raises(ConfigError, match="max_parts must be at least"):
        divided_parts(graph, ["channel"], 2, most=3)


def test_the_same_slices_are_measured_once():
    graph = load_model("lenet5", batch=8)
    rows = divided_parts(graph, ["channel", "channel"], 2, most=100)
    assert len(rows) == 1
    assert {part.index for part in rows[0][1]} == set(range(len(rows[0][0].layers)))


def test_samples_are_the_lengths_of_the_tasks_of_slices():
    graph, cluster = load_model("lenet5", batch=8), load_cluster("titanx-4")
    program = lowered(CostModel(graph, cluster), named_strategy("channel", graph, 2))
    rows = []
    for rank in (0, 1):
        samples = PartSamples(program, rank, CpuDevice(), own_status(rank), OptimizerSpec())
        samples.prepare()
        samples.sample()
        rows += samples.rows()
    priced = with_samples(program, rows)
    mine = priced.is_compute & (priced.device == 1)
    assert {program.graph.layers[i].name for i in priced.layer[mine].tolist()} >= {"conv2", "conv2 sum", "fc1 sum"}
    assert (priced.work_s[priced.is_compute] > 0).all()


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("warm_ranks")
def test_a_plan_of_slices_is_priced_by_its_probe(tmp_path):
    settings = ProbeSettings(batch=4, processes=2, strategies=("channel",), repetitions=3)
    found = probe(["lenet5"], settings, out=tmp_path / "here")
    cluster, graph = load_cluster(str(found.cluster_file)), load_model("lenet5", batch=4)
    profile = load_profile(cluster.devices[0].profile)
    assert {layer for _, layer, _ in profile.parts} >= {"conv2, in_channel 2", "conv2 sum", "fc2, in_channel 2"}
    plan = make_plan(graph, cluster, strategy="channel")
    program = lowered(CostModel(graph, cluster), plan.configurations)
    measured = {
        (layer, row.phase): row.samples.median_s for row in found.summary.rows for layer in row.layers
    }  # one size a layer: all its parts are alike
    for task in range(program.size):
        if program.is_compute[task]:
            layer = program.graph.layers[program.layer[task]]
            expected_s = measured[layer.measured_name, KINDS[program.kind[task]]]
            assert program.work_s[task] == pytest.approx(expected_s, rel=1e-6)
