"""Samples of a rank's parts: made and dropped, and every task priced by what its own part took."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from executor.probe.measured_rows import ProbeRow, TimeSamples
from executor.probe.parts_to_measure import parts_of
from executor.runtime.devices import CpuDevice
from executor.runtime.run_options import RunOptions
from executor.supervision.status_board import RankState
from executor.validation.part_samples import PartSamples
from executor.validation.planned_variants import with_samples
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan

pytestmark = pytest.mark.timeout(200)
CLUSTER = "lab-4:nodes=2"


class _Noted:
    """Stands for a status board."""

    def __init__(self):
        self.states = []

    def at(self, task, state, peer=-1):
        self.states.append(state)


def test_samples_outlive_the_tensors_and_every_part_tells_that_it_is_made():
    graph, cluster, status = load_model("lenet5", batch=8), load_cluster(CLUSTER), _Noted()
    program = lower_plan(make_plan(graph, cluster, strategy="data"), graph, cluster)
    samples = PartSamples(program, 1, CpuDevice(), status, RunOptions(plan="").optimizer)
    parts = len(parts_of(graph, [program.spaces]))
    assert samples.tensor_bytes > 3 * 4 * sum(layer.parameter_count for layer in graph.layers)
    assert not status.states
    samples.prepare()
    assert status.states == [RankState.COMPUTING] * 4 * parts  # made, forward, back, updated
    samples.prepare()
    assert len(status.states) == 4 * parts
    for _ in range(2):
        samples.prepare()
        samples.sample()
        samples.drop()
    counts = Counter((row.layers, row.sizes, row.phase) for row in samples.rows())
    assert set(counts.values()) == {2}
    priced = with_samples(program, samples.rows())
    assert (priced.work_s[priced.is_compute] > 0).all()


def test_samples_are_the_lengths_of_their_parts_tasks():
    graph, cluster = load_model("lenet5", batch=8), load_cluster(CLUSTER)
    plan = make_plan(graph, cluster, strategy="model")
    program = lower_plan(plan, graph, cluster)
    parts = parts_of(graph, [program.spaces])
    rows = [
        ProbeRow(
            model=graph.name,
            layers=part.layers,
            sizes=part.sizes,
            phase=phase,
            flop=0.0,
            samples=TimeSamples((100.0, 1e-3 * part.sizes[1] + part.index, 0.0)),
        )
        for part in parts
        for phase in ("forward", "activation_gradient", "weight_gradient", "update")
    ]
    priced = with_samples(program, rows)
    for task in np.flatnonzero(program.is_compute).tolist():
        layer = graph.layers[program.layer[task]]
        channels = layer.output.sizes[1] // plan.configurations[layer.name].degrees.get("channel", 1)
        assert priced.work_s[task] == pytest.approx(1e-3 * channels + program.layer[task])
    assert with_samples(program, []) is program


@pytest.mark.parametrize(
    ("strategy", "parts"), [("pipeline", 1), ("data", 2)], ids=["every layer is cut", "the last are cut"]
)
def test_of_layers_that_are_cut_sub_batches_are_sampled(strategy, parts):
    """Each task takes what its own number of samples took: a whole batch would be as many times too long."""
    graph, cluster = load_model("lenet5", batch=16), load_cluster(CLUSTER)
    plan = make_plan(graph, cluster, strategy=strategy, sub_batches=parts)
    program = lower_plan(plan, graph, cluster)
    sampled = [PartSamples(program, rank, CpuDevice(), _Noted(), RunOptions(plan="").optimizer) for rank in range(2)]
    rows = []
    for samples in sampled:
        samples.prepare()
        samples.sample()
        rows += samples.rows()
    assert program.micro_batching.parts > 1
    known = [replace(row, samples=TimeSamples((float(row.sizes[0]),))) for row in rows]
    priced = with_samples(program, known)
    for task in np.flatnonzero(program.is_compute).tolist():
        layer = int(program.layer[task])
        split = plan.configurations[graph.layers[layer].name].degrees["sample"]
        assert priced.work_s[task] == 16 / split / program.micro_batching.of(layer)
