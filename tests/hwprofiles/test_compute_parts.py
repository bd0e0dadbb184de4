"""Measured parts: read from files, found by size, and scaled where a size was not measured."""

from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import given, strategies as st

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.compute.compute_profile import MeasuredParts, MeasuredRow
from hwprofiles.compute.profile_file import catalogue, load_profile
from planner.cost.compute_time import kernel_s
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import LAYER_PHASES
from planner.models.registry import load_model
from planner.strategies.named_strategies import named_strategy, spaces_of

GRAPH = load_model("lenet5", batch=64)
CONV = GRAPH.layers[GRAPH.index["conv2"]]
P100 = load_profile("p100")


def sized(*rows):
    return {
        dim: np.array(sizes, dtype=float) for dim, sizes in zip(CONV.output.dims, zip(*rows, strict=True), strict=True)
    }


def with_parts(times, phase="forward", model="lenet5", **changes):
    parts = {(model, "conv2", phase): MeasuredParts(tuple(times), tuple(times.values()))}
    return replace(P100, parts=parts, **changes)


def roofline(*rows, phase="forward"):
    return kernel_s(P100, "lenet5", CONV, phase, sized(*rows))


@pytest.mark.parametrize("phase", LAYER_PHASES)
def test_a_measured_part_takes_exactly_its_time(phase):
    times = {(64, 50, 8, 8): 3e-3, (32, 50, 8, 8): 2e-3, (64, 25, 8, 8): 1.7e-3, (64, 50, 4, 8): 1.1e-3}
    found = kernel_s(with_parts(times, phase), "lenet5", CONV, phase, sized(*times))

    assert found.tolist() == list(times.values())


@given(samples=st.integers(1, 256), channels=st.integers(1, 50), height=st.integers(1, 8))
def test_other_parts_are_scaled_from_the_one_nearest_in_flop(samples, channels, height):
    times = {(64, 50, 8, 8): 3e-3, (8, 50, 8, 8): 5e-4, (1, 4, 8, 8): 1e-4}
    wanted = (samples, channels, height, 8)
    distance = {size: abs(np.log(np.prod(size) / np.prod(wanted))) for size in times}  # FLOP follow the outputs here
    nearest = min(times, key=lambda size: distance[size])
    found = kernel_s(with_parts(times), "lenet5", CONV, "forward", sized(wanted))[0]

    choices = [
        time * roofline(wanted)[0] / roofline(size)[0]
        for size, time in times.items()
        if distance[size] < distance[nearest] + 1e-3
    ]
    assert min(abs(found / choice - 1) for choice in choices) < 1e-12


def test_among_parts_of_equal_work_the_closest_shape_counts():
    times = {(32, 50, 8, 8): 1.0, (64, 25, 8, 8): 2.0, (64, 50, 4, 8): 3.0}
    found = kernel_s(with_parts(times), "lenet5", CONV, "forward", sized((64, 50, 2, 8), (16, 50, 8, 8)))

    assert found[0] == pytest.approx(3.0 * roofline((64, 50, 2, 8))[0] / roofline((64, 50, 4, 8))[0])
    assert found[1] == pytest.approx(1.0 * roofline((16, 50, 8, 8))[0] / roofline((32, 50, 8, 8))[0])


def test_rows_count_for_their_model_layer_and_phase_only():
    profile = with_parts({(64, 50, 8, 8): 1.0}, model="lenet5:classes=4")
    for model, phase in (("lenet5", "forward"), ("lenet5:classes=4", "weight_gradient"), ("other", "forward")):
        assert kernel_s(profile, model, CONV, phase, sized((64, 50, 8, 8)))[0] < 1e-3
    assert kernel_s(profile, "lenet5:classes=4", CONV, "forward", sized((64, 50, 8, 8)))[0] == 1.0


def test_a_published_row_of_the_whole_layer_counts_beside_measured_parts():
    rows = {("lenet5", "conv2", "forward"): MeasuredRow(64, 5.0)}
    profile = with_parts({(8, 50, 8, 8): 1.0, (64, 50, 8, 8): 7.0}, rows=rows)
    published = replace(P100, rows=rows)

    assert kernel_s(profile, "lenet5", CONV, "forward", sized((64, 50, 8, 8)))[0] == 7.0, "measured here comes first"
    assert kernel_s(published, "lenet5:classes=4", CONV, "forward", sized((64, 50, 8, 8)))[0] == 5.0


def test_tables_and_tasks_of_a_plan_take_measured_times(monkeypatch):
    """Eq. 1's tables, and the times of tasks, are those of the rows; other layers keep their prices."""
    cluster = load_cluster("titanx-4")
    before = CostModel(GRAPH, cluster)
    sizes, index = (16, *CONV.output.sizes[1:]), GRAPH.index["conv2"]
    monkeypatch.setattr("planner.cost.compute_time.profile_in", lambda *_: with_parts({sizes: 0.25}))
    model = CostModel(GRAPH, cluster)
    spaces = spaces_of(GRAPH, named_strategy("data", GRAPH, 4), 4)

    assert model.compute_times.part_s(index, spaces[index])["forward"].tolist() == [0.25] * 4
    assert model.node_costs(index, spaces[index]).phase_s["forward"].tolist() == [0.25]
    assert model.compute_times.digest != before.compute_times.digest


def test_a_file_holds_parts_beside_rows(tmp_path):
    rows = [
        {"model": "m:image=64", "layer": "conv1", "part": [8, 16, 4, 4], "forward_ms": 2.0, "spread": 0.01},
        {"model": "m:image=64", "layer": "conv1", "part": [4, 16, 4, 4], "forward_ms": 1.5, "update_ms": 0.5},
        {"model": "m", "layer": "conv1", "batch": 64, "forward_ms": 8.0},
    ]
    profile = load_profile(write(tmp_path, rows))

    assert profile.parts["m:image=64", "conv1", "forward"] == MeasuredParts(
        ((8, 16, 4, 4), (4, 16, 4, 4)), (2e-3, 1.5e-3)
    )
    assert profile.parts["m:image=64", "conv1", "update"] == MeasuredParts(((4, 16, 4, 4),), (0.5e-3,))
    assert profile.rows == {("m", "conv1", "forward"): MeasuredRow(64, 8e-3)}


@pytest.mark.parametrize("given", [{}, {"batch": 4, "part": [4, 4]}])
def test_a_row_has_either_a_batch_or_a_part(tmp_path, given):
    with pytest.raises(ConfigError, match=r"measured\.0: .*either batch .* or part"):
        load_profile(write(tmp_path, [{"model": "m", "layer": "l", "forward_ms": 1.0, **given}]))


@pytest.mark.parametrize("part", [[], [4], [4, 0], [4, 1.5], [1] * 7])
def test_parts_are_sizes(tmp_path, part):
    with pytest.raises(ConfigError, match=r"measured\.0\.part"):
        load_profile(write(tmp_path, [{"model": "m", "layer": "l", "forward_ms": 1.0, "part": part}]))


def write(tmp_path, rows):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(catalogue()["p100"].read_text()) | {"measured": rows}))
    return str(path)
