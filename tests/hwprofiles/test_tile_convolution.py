"""Convolutions in tensor cores: against tiles counted one by one, measured rows, and what holds for all sizes."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hwprofiles.compute.compute_profile import PROFILE_PHASES
from hwprofiles.compute.kernels import ConvolutionWindow, Kernels
from hwprofiles.compute.profile_file import load_profile
from hwprofiles.measured.measured_tables import measured_table
from studies.calibrate.kernel_tables import table_kernels
from studies.calibrate.measured_kernels import grouped, log_errors

PHASES = PROFILE_PHASES[:3]
TENSOR = ("v100-16gb@float16", "t4@float16", "a100-40gb@tf32", "rtx-2080ti@float16", "h200@bfloat16", "b200@float8")


def convolution(phase, samples, into, out, positions=9, side=14, groups=1, **window):
    """One phase of a convolution as the product that implements it."""
    pixels = samples * side * side
    rows, columns, depth = {
        "forward": (out, pixels, into // groups * positions),
        "activation_gradient": (into // groups, pixels, out * positions),
        "weight_gradient": (out, into // groups * positions, pixels),
    }[phase]
    m, n, k, b = (np.array([float(size)]) for size in (rows, columns, depth, samples))
    moved = 2.0 * (pixels * (into + out) + into * out * positions / groups) + 0 * m
    window = ConvolutionWindow(positions=positions, groups=groups, **window)
    return Kernels(flop=2 * m * n * k, memory_bytes=moved, rows=m, columns=n, depth=k, samples=b, window=window)


def counted_s(profile, phase, samples, into, out, side):
    """The arithmetic of 3 x 3 windows, by Python's integers: the best of all tiles and slices."""
    tiles, number = profile.tiles, PHASES.index(phase)
    padded = -(-into // tiles.channel_multiple) * tiles.channel_multiple
    gradient = min(-(-padded // tiles.gradient_channels) * tiles.gradient_channels, 2 * padded)
    pixels = samples * side * side
    rows, columns, depth = ((out, pixels, padded * 9), (padded, pixels, out * 9), (out, gradient * 9, pixels))[number]
    slow = tiles.unaligned[number] if into % tiles.channel_multiple or out % tiles.channel_multiple else 1.0
    found = []
    for r, c in [(32, 256), (64, 64), (64, 128), (128, 64), (64, 256), (256, 64), (128, 128), (128, 256), (256, 128)]:
        if r < tiles.least_rows:
            continue
        for slices in (1,) if number == 1 else (1, 2, 4, 8, 16, 32, 64, 128)[: 8 if number else 4]:
            steps = -(-depth // (32 * slices))
            if slices > 1 and steps < 2:
                continue
            blocks = -(-rows // r) * -(-columns // c) * slices / profile.multiprocessors
            waves = (math.ceil(blocks) + max(blocks, 1)) / 2
            cost = (tiles.ceiling**-4 + (tiles.load[number] * slow * (1 / r + 1 / c)) ** 4) ** 0.25
            seconds = waves * (32 * steps + tiles.prologue) * 2 * r * c * cost
            seconds *= profile.multiprocessors / profile.peak_flop_per_s
            if slices > 1:
                seconds += 4 * slices * rows * columns * tiles.partial_accesses / profile.memory_bytes_per_s
            found.append(seconds)
    return min(found)


@settings(max_examples=30)
@given(
    name=st.sampled_from(TENSOR),
    phase=st.sampled_from(PHASES),
    samples=st.integers(1, 64),
    into=st.integers(1, 600),
    out=st.integers(1, 600),
    side=st.integers(1, 40),
)
def test_the_arithmetic_is_that_of_the_best_tile(name, phase, samples, into, out, side):
    profile = load_profile(name)
    kernels = convolution(phase, samples, into, out, side=side)
    expected = counted_s(profile, phase, samples, into, out, side)
    assert profile.arithmetic_s(kernels, phase) == pytest.approx(expected, rel=1e-9)
    assert profile.time_s(kernels, phase=phase) >= kernels.flop / profile.peak_flop_per_s


@settings(max_examples=30)
@given(
    name=st.sampled_from(TENSOR),
    phase=st.sampled_from(PHASES),
    halves=st.tuples(st.integers(1, 32), st.integers(1, 20), st.integers(1, 20)),
    axis=st.integers(0, 2),
)
def test_half_of_the_samples_or_of_aligned_channels_takes_at_least_half_and_no_longer(name, phase, halves, axis):
    profile = load_profile(name)
    whole = [2 * halves[0], 32 * halves[1], 32 * halves[2]]
    half = [size // 2 if at == axis else size for at, size in enumerate(whole)]
    whole_s, half_s = (profile.time_s(convolution(phase, *sizes), phase=phase)[0] for sizes in (whole, half))
    assert whole_s / 2 * (1 - 1e-9) <= half_s <= whole_s * (1 + 1e-9)


def test_groups_are_products_side_by_side():
    """Two groups of 64 channels take the arithmetic of twice the samples of one, where blocks fill whole waves."""
    profile = load_profile("v100-16gb@float16")
    for phase in PHASES:
        one = profile.arithmetic_s(convolution(phase, 640, 64, 64, side=64), phase)
        two = profile.arithmetic_s(convolution(phase, 640, 128, 128, side=64, groups=2), phase)
        assert two == pytest.approx(2 * one, rel=0.02)


@pytest.mark.parametrize(
    ("name", "table", "rows", "median", "ninth"),
    [
        ("v100-16gb@float16", "deepbench_conv", "gpu == 'V100' and precision == 'fp16'", 0.12, 0.33),
        ("h200@float16", "h200_convolutions", "precision == 'float16'", 0.11, 0.33),
        ("h200@bfloat16", "h200_convolutions", "precision == 'bfloat16'", 0.12, 0.36),
        ("h200@tf32", "h200_convolutions", "precision == 'tf32'", 0.1, 0.29),
    ],
)
def test_measured_convolutions_are_met(name, table, rows, median, ninth):
    """Rows that the profiles were fitted to: that the file holds what the fit found, in the units it is read in."""
    groups = grouped(table_kernels(measured_table(table).query(rows).reset_index(drop=True), table))
    errors = np.abs(np.expm1(log_errors(load_profile(name).for_single_kernels(), groups)))
    assert np.median(errors) < median
    assert np.quantile(errors, 0.9) < ninth


def test_tiles_of_one_card_predict_those_of_another():
    """V100's parameters, of 2017, with the peak, bandwidth, multiprocessors and launches of H200, of 2023, and its
    library's kernels of float32 for unaligned channels."""
    table = measured_table("h200_convolutions").query("precision == 'float16'").reset_index(drop=True)
    groups = grouped(table_kernels(table, "h200_convolutions"))
    theirs, ours = (load_profile(f"{name}@float16").for_single_kernels() for name in ("v100-16gb", "h200"))
    own = {name: getattr(ours.tiles, name) for name in ("overhead_s", "plain_overhead_s", "unaligned_in_float32")}
    errors = np.abs(np.expm1(log_errors(replace(ours, tiles=replace(theirs.tiles, **own)), groups)))
    assert np.median(errors) < 0.17
    assert np.quantile(errors, 0.9) < 0.42


def test_channels_that_tensor_cores_do_not_load_at_once_take_longer_than_in_float32():
    """DeepBench on V100: an image of one channel, 5 x 20, stride 2 x 2, takes 7 to 8 times as long."""
    rows = measured_table("deepbench_conv").query("gpu == 'V100' and in_c == 1 and filter_s_w == 20")
    for precision, profile in (("fp32", "v100-16gb"), ("fp16", "v100-16gb@float16")):
        groups = grouped(table_kernels(rows[rows.precision == precision].reset_index(drop=True), "deepbench_conv"))
        forward = [group for group in groups if group.phase == "forward"]
        assert np.median(np.abs(np.expm1(log_errors(load_profile(profile).for_single_kernels(), forward)))) < 0.5


@pytest.mark.parametrize("name", ["h200@tf32", "a100-40gb@tf32", "h200@float16", "b200@bfloat16", "v100-16gb@float16"])
def test_unaligned_channels_take_kernels_of_float32_where_a_library_has_them(name):
    """On the same data: always in TF32, in half precision with cuDNN 9 on H200, and not with cuDNN 7 on V100."""
    profile = load_profile(name).for_single_kernels()
    for phase in PHASES:
        kernels = convolution(phase, 16, 1, 32, positions=100, side=166, stride=4)
        wide_s = profile.in_float32.time_s(kernels, phase=phase)[0]
        taken_s = profile.time_s(kernels, phase=phase)[0]
        assert taken_s > 2 * wide_s if name.startswith("v100") else taken_s <= wide_s
    assert profile.faster(2).tiles.unaligned_in_float32 == profile.tiles.unaligned_in_float32


@pytest.mark.parametrize(("channels", "as_many"), [(16, 32), (32, 64), (48, 64), (64, 64), (96, 128), (160, 192)])
def test_weight_gradients_cover_whole_tiles_of_channels_or_twice_as_many(channels, as_many):
    profile = load_profile("h200@bfloat16")
    aligned = replace(profile, tiles=replace(profile.tiles, gradient_channels=1))
    ours, covered = (
        each.arithmetic_s(convolution("weight_gradient", 16, into, 64), "weight_gradient")[0]
        for each, into in ((profile, channels), (aligned, as_many))
    )
    assert ours == pytest.approx(covered)
    assert profile.extensions != aligned.extensions
    plain = convolution("weight_gradient", 16, channels, 64, positions=1)
    assert profile.arithmetic_s(plain, "weight_gradient") == aligned.arithmetic_s(plain, "weight_gradient")


@pytest.mark.parametrize("precision", ["tf32", "float16", "bfloat16"])
def test_windows_of_one_position_without_strides_launch_as_plain_products(precision):
    """H200: with one overhead for all windows, their median error is 1.3 times as large at least."""
    table = measured_table("h200_convolutions").query(
        f"precision == '{precision}' and filter_r_h == 1 and stride_h == 1 and in_c % 8 == 0"
    )
    groups = grouped(table_kernels(table.reset_index(drop=True), "h200_convolutions"))
    profile = load_profile(f"h200@{precision}").for_single_kernels()
    same = replace(profile, tiles=replace(profile.tiles, plain_overhead_s=None))
    own, other = (np.median(np.abs(np.expm1(log_errors(each, groups)))) for each in (profile, same))
    assert own < 0.15
    assert other > 1.3 * own
    assert profile.faster(2).tiles.plain_overhead_s == tuple(each / 2 for each in profile.tiles.plain_overhead_s)
    assert profile.extensions != same.extensions


@pytest.mark.parametrize("name", ["h200@bfloat16", "h100-80gb@float16", "a100-80gb@bfloat16"])
def test_a_vocabulary_that_is_padded_is_faster(name):
    """GPT-2's 50,257 words and the 50,264 of the next multiple of 8: samples need not be a multiple of anything."""
    profile = load_profile(name)
    for number, phase in enumerate(PHASES):
        seconds = []
        for words in (50_257, 50_264):
            sizes = ((words, 8191, 768), (768, 8191, words), (words, 768, 8191))[number]
            m, n, k = (np.array([float(size)]) for size in sizes)
            kernels = Kernels(flop=2 * m * n * k, memory_bytes=0 * m, rows=m, columns=n, depth=k, samples=n)
            seconds.append(profile.arithmetic_s(kernels, phase)[0])
        assert seconds[0] / seconds[1] == pytest.approx(profile.efficiency.unaligned[number], rel=0.01)
    padded = replace(profile, efficiency=replace(profile.efficiency, unaligned=(1.0, 1.0, 1.0)))
    assert profile.extensions != padded.extensions


# Rows, inner dimension, columns and TFLOP/s of products of H100 in bfloat16, published with float8_experimental of
# meta-pytorch, pull request 145 (2024): inner dimensions are odd, and nothing pads them.  The padded shape is left out.
ODD_PRODUCTS = [
    (1023, 1029, 2512, 71.2),
    (4095, 511, 10000, 94.8),
    (2047, 3073, 8192, 115.0),
    (511, 769, 7504, 83.8),
    (127, 4097, 12288, 86.8),
]


def test_products_with_odd_inner_dimensions_reach_what_was_published():
    profile, ratios = load_profile("h100-80gb@bfloat16").for_single_kernels(), []
    for sizes in ODD_PRODUCTS:
        columns, depth, rows, teraflops = (np.array([float(size)]) for size in sizes)
        flop, moved = 2 * rows * columns * depth, 4.0 * (rows * depth + depth * columns + rows * columns)
        kernels = Kernels(flop=flop, memory_bytes=moved / 2, rows=rows, columns=columns, depth=depth, samples=columns)
        ratios.append((profile.time_s(kernels) * teraflops * 1e12 / flop)[0])
    assert np.median(ratios) == pytest.approx(1, abs=0.1)
    assert np.max(np.abs(np.log(ratios))) < 0.5


def test_half_precision_without_tensor_cores_has_the_kernels_of_float32():
    """P100 stores two bytes and computes in float32: the same arithmetic, half of the traffic."""
    wide, half = (load_profile(name) for name in ("p100", "p100@float16"))
    kernels = convolution("forward", 32, 128, 128, winograd=True)
    assert half.arithmetic_s(kernels, "forward") == pytest.approx(wide.arithmetic_s(kernels, "forward"))
    assert (half.element_bytes, half.tiles) == (2, None)
