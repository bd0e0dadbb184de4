"""What software runs beside a convolution: transposed images against measured ones, and biases against counting."""

import numpy as np
import pytest

from hwprofiles.compute.fused_kernels import elementwise_kernels
from hwprofiles.compute.fused_times import fused_s
from hwprofiles.compute.profile_file import load_profile
from hwprofiles.devices.device import Device
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.measured.measured_tables import measured_table
from planner.cost.compute_time import ComputeTimes, transposed_s
from planner.cost.software import software_of
from planner.graph.type_roles import DataTypes
from planner.layouts.configurations import Configuration, space_of
from planner.models.registry import load_model
from studies.fidelity.single_kernels import convolution_layer

H200 = DeviceGraph("one h200", (Device(name="gpu0", node=0, profile="h200", memory_bytes=2**40),), (), ())
PHASES = {"forward": "fwd_us", "activation_gradient": "bwd_data_us", "weight_gradient": "bwd_weight_us"}


def part_of(layer):
    return {dim: np.array([float(size)]) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_transposed_images_take_what_both_orders_of_channels_differ_by(precision):
    """Windows of more than one position on an H200: longer kernels, where neither launch nor noise decides."""
    table = measured_table("h200_convolutions").query("precision == @precision and filter_r_h > 1")
    sizes = [column for column in table if column not in ("gpu", "layout", *PHASES.values())]
    first, last = (table[table.layout == f"channels-{order}"] for order in ("first", "last"))
    both = first.merge(last, on=sizes, suffixes=("_first", "_last")).query("in_c % 8 == 0 and out_k % 8 == 0")
    ratios = []
    for row in both.itertuples():
        layer = convolution_layer(row)
        for phase, column in PHASES.items():
            measured_s = (getattr(row, f"{column}_first") - getattr(row, f"{column}_last")) * 1e-6
            predicted_s = transposed_s(load_profile(f"h200@{precision}"), layer, phase, part_of(layer))[0]
            ratios.append(predicted_s / measured_s)
    assert len(ratios) > 50
    assert np.median(ratios) == pytest.approx(1.0, abs=0.15)


def test_plain_products_and_float32_transpose_nothing():
    rows = measured_table("h200_convolutions").query("filter_r_h == 1 and stride_h == 1 and in_c == 64")
    layer = convolution_layer(next(rows.itertuples()))
    wide = convolution_layer(
        next(measured_table("h200_convolutions").query("filter_r_h == 3 and in_c == 64").itertuples())
    )
    assert transposed_s(load_profile("h200@float16"), layer, "forward", part_of(layer)) == 0
    assert transposed_s(load_profile("h200"), wide, "forward", part_of(wide)) == 0
    assert transposed_s(load_profile("h200@float16"), wide, "forward", part_of(wide)) > 0


@pytest.mark.parametrize(("phase", "accesses"), [("forward", 2), ("activation_gradient", 0), ("weight_gradient", 1)])
def test_a_bias_is_added_by_a_kernel_of_its_own(phase, accesses):
    graph = load_model("vgg16", batch=16)
    index = next(i for i, layer in enumerate(graph.layers) if layer.name == "conv2_2")
    output = graph.layers[index].output
    space = space_of(graph.layers[index], Configuration(dict.fromkeys(graph.layers[index].parallel_dims, 1), (0,)), 1)
    types = DataTypes.of("float16")
    joined, apart = (
        ComputeTimes(graph, H200, types, software=software_of(f"pytorch:fused={fused},channels_first=0"))
        for fused in (1, 0)
    )
    kernels = elementwise_kernels(elements=np.array([float(np.prod(output.sizes))]), accesses=float(accesses))
    expected = fused_s(load_profile("h200@float16"), kernels) if accesses else 0.0
    assert apart.part_s(index, space)[phase] - joined.part_s(index, space)[phase] == pytest.approx(expected, rel=1e-6)
