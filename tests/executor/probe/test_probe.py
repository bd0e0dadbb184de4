"""Probed parts: which they are, that they are timed as a step times them, and that planners price by them."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from imported_networks import NETWORKS
from plans import inception_module, random_strategy, residual_block, star

from executor.layers.base import PartLayer
from executor.layers.convolution import ConvolutionPart
from executor.probe.device_probe import DeviceFacts
from executor.probe.layer_probe import LayerProbe
from executor.probe.measured_rows import ProbeRow, TimeSamples, over_ranks
from executor.probe.parts_to_measure import added_slots, divided_parts, parts_of, portions, rounds_of, strategy_parts
from executor.probe.probed_profile import write_profile
from executor.runtime.devices import CpuDevice
from groundwork.errors import ConfigError
from hwprofiles.compute.profile_file import load_profile
from hwprofiles.devices.device import MemoryReserve
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import LAYER_PHASES
from planner.importing.graph_of import imported_graph
from planner.layouts.regions import held_regions
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

FACTS = DeviceFacts(
    name="core",
    threads=1,
    memory_bytes=2.0**30,
    memory_reserve=MemoryReserve(),
    multiprocessors=1,
    peak_flop_per_s=1e10,
    memory_bytes_per_s=1e10,
    launch_overhead_s=1e-6,
    software="torch",
    measured="today",
)


class Ticking(CpuDevice):
    """Every look at its clock is a second after the last."""

    def __init__(self):
        self.now = 0

    def mark(self):
        self.now += 1
        return float(self.now)


def twins():
    """Two equal layers, each read twice, and a normalisation."""
    net = ModelBuilder("twins", batch=4, image=(8, 6, 6))
    net.conv(8, 3, pad=1, activation="relu", name="one")
    net.conv(8, 3, pad=1, activation="relu", name="two")
    net.conv(8, 3, pad=1, activation="relu", name="three")
    net.batch_norm(name="norm")
    net.linear(4, name="fc")
    net.loss()
    return net.build()


def plans_of(graph, strategies, count):
    return [spaces_of(graph, strategy, count) for strategy in strategies]


@given(seed=st.integers(0, 2**32), count=st.integers(1, 6))
def test_every_part_of_every_plan_is_measured_and_none_twice(seed, count):
    graph, rng = twins(), np.random.default_rng(seed)
    plans = plans_of(graph, [random_strategy(graph, count, rng) for _ in range(3)], count)
    parts = parts_of(graph, plans)
    measured = [(layer, part.sizes) for part in parts for layer in part.layers]

    assert len(set(measured)) == len(measured)
    for plan in plans:
        for layer, space in zip(graph.layers, plan, strict=True):
            boxes = held_regions(space)
            assert {(layer.name, tuple(row)) for row in (boxes.high - boxes.low).tolist()} <= set(measured)


def test_equal_layers_share_their_measurements_and_the_first_is_not_equal():
    graph = twins()
    names = [part.layers for part in parts_of(graph, plans_of(graph, [named_strategy("data", graph, 2)], 2))]

    assert names == [("one",), ("two", "three"), ("norm",), ("fc",), ("softmax",)]


def test_all_degrees_are_all_that_divide_and_too_many_are_refused():
    graph = load_model("lenet5", batch=8)
    parts = strategy_parts(graph, ["all"], 4, most=1000)
    softmax = {part.sizes for part in parts if part.layers == ("softmax",)}

    assert {sizes[0] for sizes in softmax} == {8, 4, 2}
    with pytest.raises(ConfigError, match=rf"max_parts must be at least the {len(parts)} parts of lenet5 .* got 9"):
        strategy_parts(graph, ["all"], 4, most=9)


def test_stages_are_measured_on_what_they_take_at_once():
    """Two devices, up to four micro-batches each."""
    graph = load_model("lenet5", batch=16)
    [(small, parts)] = divided_parts(graph, ["pipeline"], 2, most=1000)
    assert small.batch == 2
    assert {name for part in parts for name in part.layers} == set(graph.index)
    assert {part.sizes for part in parts} == {layer.output.sizes for layer in small.layers}
    both = divided_parts(graph, ["data", "pipeline"], 2, most=1000)
    assert [row.batch for row, _ in both] == [16, 2]


def test_micro_batches_of_a_plan_are_measured_by_its_text():
    graph = load_model("lenet5", batch=16)
    texts = ["data,micro-batches=4,recompute=segments", "pipeline,schedule=gpipe,micro-batches=8"]
    for text, batch, parts in zip(texts, (4, 2), (2, 1), strict=True):
        [(small, found)] = divided_parts(graph, [text], 2, most=1000)
        assert small.batch == batch
        assert {part.sizes[0] for part in found} == {batch // parts}
    with pytest.raises(ConfigError, match="micro_batches must be >= 1 and divide the batch of 16, got 3"):
        divided_parts(graph, ["data,micro-batches=3"], 2, most=1000)


@pytest.mark.parametrize("graph", [residual_block(), inception_module(), twins()])
def test_gradients_of_a_tensor_are_added_once_less_than_it_is_read(graph):
    adds = [0] * len(graph.layers)
    for i, layer in enumerate(graph.layers):
        for source, added in zip(layer.inputs, added_slots(graph, i), strict=True):
            if added:
                adds[graph.index[source]] += 1

    for i, readers in enumerate(graph.consumers):
        assert adds[i] == (max(len(readers) - 1, 0) if graph.has_gradient(i) else 0)


def test_a_sample_runs_forward_then_back_then_updates_each_once():
    """One part of each layer at a time, as a step does; the clock ticks twice a phase."""
    graph, device = twins(), Ticking()
    parts = parts_of(graph, plans_of(graph, [named_strategy(s, graph, 2) for s in ("data", "model")], 2))
    probe, seen = LayerProbe(graph, parts, device), list[int]()
    probe.warm_up()
    assert device.now == 0
    probe.sample(seen.append)
    probe.sample()

    assert {row.samples.seconds for row in probe.rows()} == {(1.0, 1.0)}
    assert len(probe.rows()) * 4 == device.now
    rounds = [[parts.index(part) for part in row] for row in rounds_of(parts)]
    assert seen == [n for row in rounds for n in (*row, *row[::-1], *row[::-1])]
    assert probe.sums_s.seconds == (len(probe.rows()),) * 2


class Forgetting(Ticking):
    """Like the events of a GPU, its marks mean something only until the next sample begins."""

    def __init__(self):
        super().__init__()
        self.start = 0

    def seconds(self, mark):
        assert mark > self.start
        return mark

    def synchronize(self):
        self.start, self.before = getattr(self, "before", 0), self.now


def test_marks_are_read_before_the_next_sample():
    graph = twins()
    probe = LayerProbe(graph, parts_of(graph, plans_of(graph, [named_strategy("data", graph, 2)], 2)), Forgetting())
    for _ in range(3):
        probe.sample()
    assert {row.samples.seconds for row in probe.rows()} == {(1.0, 1.0, 1.0)}


def test_layers_that_look_words_up_are_given_words():
    trace = trace_of(NETWORKS["llama-tiny"].make(), input_specs(["8x8:int"]))
    graph = imported_graph(trace, name="llama-tiny", loss="softmax_per_position").graph
    probe = LayerProbe(graph, parts_of(graph, plans_of(graph, [named_strategy("data", graph, 2)], 2)), Ticking())
    probe.sample()
    assert {graph.layers[0].name} <= {row.layers[0] for row in probe.rows()}


def test_phases_are_those_that_the_model_has():
    graph = twins()
    parts = parts_of(graph, plans_of(graph, [named_strategy("data", graph, 1)], 1))
    probe = LayerProbe(graph, parts, Ticking())
    probe.sample()
    found = {(row.layers[0], row.phase) for row in probe.rows()}

    assert found == {
        (part.layers[0], phase) for part in parts for phase in LAYER_PHASES if graph.has_phase(part.index, phase)
    }
    assert ("one", "activation_gradient") not in found


def test_what_both_gradients_start_from_is_charged_to_the_first(monkeypatch):
    """To the activation gradient, and where there is none to the weight gradient."""
    graph, device, begun = twins(), Ticking(), list[tuple[str, int]]()
    begin, go_back = ConvolutionPart.begin_backward, ConvolutionPart.activation_gradient

    def note(self, gradient):
        begun.append((self.layer.name, device.now))
        begin(self, gradient)

    def note_second(self):
        begun.append((f"{self.layer.name} inputs", device.now))
        return go_back(self)

    monkeypatch.setattr(ConvolutionPart, "begin_backward", note)
    monkeypatch.setattr(ConvolutionPart, "activation_gradient", note_second)
    LayerProbe(graph, parts_of(graph, plans_of(graph, [named_strategy("data", graph, 1)], 1)), device).sample()

    times = dict(begun)
    assert times["two"] == times["two inputs"], "in the same phase"
    assert times["two"] % 2 == times["one"] % 2 == 1, "the clock is odd within a phase"
    assert "one inputs" not in times


def test_parameters_stay_where_they_are():
    """Times do not depend on how often a part was measured: no growth, no overflow."""
    graph = twins()
    parts = parts_of(graph, plans_of(graph, [named_strategy("data", graph, 2)], 2))
    probe = LayerProbe(graph, parts, CpuDevice())
    first = [{n: t.clone() for n, t in case._parameters.items()} for case in probe._cases]
    for _ in range(5):
        probe.sample()

    for case, before in zip(probe._cases, first, strict=True):
        for name, tensor in case._parameters.items():
            torch.testing.assert_close(tensor, before[name], atol=1e-6, rtol=0)
    assert all(min(row.samples.seconds) > 0 for row in probe.rows())


def test_numbers_of_8_bytes_are_refused():
    graph = load_model("lenet5", batch=2, element_bytes=8)
    with pytest.raises(ConfigError, match="element_bytes must be 4 to be probed, got 8"):
        LayerProbe(graph, [], CpuDevice())


def test_portions_are_whole_rounds_that_fit():
    graph = load_model("lenet5", batch=8)
    parts = strategy_parts(graph, ["all"], 2, most=1000)
    rounds = rounds_of(parts)
    split = portions(graph, parts, 1.0)

    assert [list(row) for row in split] == rounds, "one round is measured even where it does not fit"
    assert portions(graph, parts, 1e12) == [[part for row in rounds for part in row]]
    for row in rounds:
        indices = [part.index for part in row]
        assert indices == sorted(set(indices))


def test_planners_price_by_the_written_profile(tmp_path, monkeypatch):
    """Every task of a plan whose parts were measured takes the median; the file says where it was measured."""
    graph = load_model("lenet5", batch=8)
    spaces = spaces_of(graph, named_strategy("data", graph, 2), 2)
    probe = LayerProbe(graph, parts_of(graph, [spaces]), CpuDevice())
    for _ in range(3):
        probe.sample()
    path = tmp_path / "here.yaml"
    write_profile(probe.rows(), path, device=FACTS, note="alone")
    profile = load_profile(str(path))
    monkeypatch.setattr("planner.cost.compute_time.profile_in", lambda *_: profile)
    model = CostModel(graph, star(2))
    medians = {(name, row.phase): row.samples.median_s for row in probe.rows() for name in row.layers}

    for i, layer in enumerate(graph.layers):
        for phase, times in model.compute_times.part_s(i, spaces[i]).items():
            assert times == pytest.approx(medians[layer.name, phase], rel=1e-9)
    assert "core, 1 thread" in profile.description
    assert profile.sources == ("Measured today with torch", "alone")
    assert profile.memory_bytes == FACTS.memory_bytes
    assert not list(tmp_path.glob(".*"))


def test_ceilings_are_the_share_of_the_peak_that_products_reach(tmp_path):
    def row(phase, flop, seconds):
        sizes = (1, int(flop))
        return ProbeRow(model="m", layers=("l",), sizes=sizes, phase=phase, flop=flop, samples=TimeSamples((seconds,)))

    start = FACTS.launch_overhead_s
    rows = [
        row("forward", 1e6, start + 1e6 / 8e9),
        row("forward", 2e6, start + 2e6 / 6e9),
        row("forward", 3e6, start + 3e6 / 4e9),
        row("weight_gradient", 1e6, start + 1e6 / 20e9),
    ]
    write_profile(rows, tmp_path / "here.yaml", device=FACTS)
    profile = load_profile(str(tmp_path / "here.yaml"))

    assert profile.peak_flop_per_s == pytest.approx(20e9), "no product is faster than the peak"
    assert profile.efficiency.ceiling[:3] == pytest.approx((6 / 20, 1.0, 1.0))


def test_samples_know_their_spread():
    times = np.random.default_rng(0).normal(1.0, 0.1, 100_000)
    samples = TimeSamples(tuple(times.tolist()))

    assert samples.median_s == pytest.approx(1.0, abs=0.002)
    assert samples.spread == pytest.approx(0.06745, rel=0.02)
    assert samples.uncertainty == pytest.approx(0.1 * 1.2533 / np.sqrt(len(times)), rel=0.02)
    assert TimeSamples((2.0,)).spread == 0


def test_rows_of_several_ranks_are_their_medians_sample_by_sample():
    def rows(*seconds):
        return [
            ProbeRow(model="m", layers=("l",), sizes=(1, 1), phase="forward", flop=0.0, samples=TimeSamples(seconds))
        ]

    joined = over_ranks([rows(1.0, 9.0), rows(2.0, 8.0), rows(6.0, 1.0)])
    assert [row.samples.seconds for row in joined] == [(2.0, 8.0)]


def test_every_kind_of_part_is_a_part_layer():
    """What is timed is what the executor runs."""
    graph = inception_module()
    parts = parts_of(graph, plans_of(graph, [named_strategy("spatial", graph, 2)], 2))
    probe = LayerProbe(graph, parts, CpuDevice())
    probe.sample()
    assert len(probe._cases) == len(parts) > len(graph.layers) / 2
    assert all(isinstance(case._layer_part, PartLayer) for case in probe._cases)
