"""Tables of measured kernels: they meet the rows, fade far away, and keep what planners rely on."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hwprofiles.compute.compute_profile import PROFILE_PHASES
from hwprofiles.compute.convolution_efficiency import NAIVE_SHARE, padded_rows
from hwprofiles.compute.kernel_table import KernelTable, TableRows
from hwprofiles.compute.kernels import ConvolutionWindow, Kernels
from hwprofiles.compute.profile_file import load_profile, profile_names

FITTED = [name for name in profile_names() if load_profile(name).convolution]
WINDOWS = [
    ConvolutionWindow(positions=1),
    ConvolutionWindow(positions=9, winograd=True),
    ConvolutionWindow(positions=9, stride=4),
    ConvolutionWindow(positions=25, fourier=True),
    ConvolutionWindow(positions=7, one_dimensional=True),
    ConvolutionWindow(positions=9, groups=32),
]


def convolution(window, rows, columns, depth, samples=1.0):
    m, n, k, b = (np.atleast_1d(np.asarray(x, float)) for x in (rows, columns, depth, samples))
    return Kernels(
        flop=2 * m * n * k,
        memory_bytes=4 * (m * n + (n * k + m * k) / window.positions),
        rows=m,
        columns=n,
        depth=k,
        samples=b,
        window=window,
    )


size = st.integers(1, 3000).map(lambda x: 2.0 * x)


@settings(max_examples=30)
@given(
    name=st.sampled_from(FITTED),
    phase=st.sampled_from(PROFILE_PHASES[:3]),
    window=st.sampled_from(WINDOWS),
    sizes=st.tuples(size, size, size),
    axis=st.integers(0, 2),
)
def test_half_a_convolution_takes_no_longer_and_hardly_less_than_half(name, phase, window, sizes, axis):
    """Measured products of recent cards take up to 1.36 times four times as long for four times the samples."""
    half = [value / 2 if at == axis else value for at, value in enumerate(sizes)]
    profile = load_profile(name)
    whole_s, half_s = (profile.time_s(convolution(window, *each), phase=phase)[0] for each in (sizes, half))

    assert whole_s / 2**1.1 * (1 - 1e-12) <= half_s <= whole_s * (1 + 1e-12)


def test_kernels_that_grow_faster_than_their_size_are_followed_a_little():
    """A product whose half is measured 40 % faster: the table follows by 2^0.1, without lowering all larger ones."""
    sizes = np.array([[4096.0, 4096.0, 4096.0], [4096.0, 8192.0, 4096.0], [4096.0, 16384.0, 4096.0]])
    rows = TableRows(
        phase=np.zeros(3, int),
        sizes=sizes,
        positions=np.zeros(3, int),
        stride=np.ones(3, int),
        correction=np.array([-0.2, 0.2, 0.2]),
    )
    steep = KernelTable(rows=rows, lengths=(1.5, 0.5, 1.5, 1.0, 1.0), spread=0.3, noise=0.05)
    found_s = steep.arithmetic_s(tuple(sizes.T), 0, None, lambda m, n, k: 2 * m * n * k, "flop")
    assert found_s[1] / found_s[0] == pytest.approx(2**1.1)
    assert found_s[2] / (2 * sizes[2].prod()) > 1


@settings(max_examples=20)
@given(
    name=st.sampled_from(FITTED),
    phase=st.sampled_from(PROFILE_PHASES[:3]),
    window=st.sampled_from(WINDOWS),
    sizes=st.tuples(*[st.floats(0, 20).map(lambda x: float(round(2**x)))] * 3),
)
def test_no_kernel_falls_below_a_naive_implementation_or_streaming(name, phase, window, sizes):
    profile, kernels = load_profile(name), convolution(window, *sizes)
    traffic_s = kernels.memory_bytes / (profile.memory_bytes_per_s * profile.convolution.memory)
    naive_s = kernels.flop / (profile.peak_flop_per_s * NAIVE_SHARE)

    time_s = profile.time_s(kernels, phase=phase) - profile.convolution.overhead_s
    assert time_s[0] <= max(traffic_s[0], naive_s[0]) * (1 + 1e-9)


def table(correction, noise=0.01):
    rows = TableRows(
        phase=np.array([0]),
        sizes=np.array([[512.0, 4096.0, 1024.0]]),
        positions=np.array([0]),
        stride=np.array([1]),
        correction=np.array([correction]),
    )
    return KernelTable(rows=rows, lengths=(1.5, 1.5, 1.5, 1.0, 1.0), spread=0.3, noise=noise)


@pytest.mark.parametrize("correction", [-0.2, 0.3])
def test_a_measured_kernel_is_met_and_fades_far_away(correction):
    """The mean of a process through one point: all of it there, exp(-1/2) of it one length away, none far off."""
    rows = np.array([[512.0, 4096.0, 1024.0], [512 * np.exp(1.5), 4096.0, 1024.0], [512.0, 4096.0, 2.0**30]])
    found = table(correction).correction(rows, 0, None)

    assert found == pytest.approx(np.array([1, np.exp(-0.5), 0]) * correction, rel=3e-3, abs=1e-3)
    assert not table(correction).correction(rows, 1, None).any(), "other phases keep their formula"
    assert not table(correction).correction(rows, 0, WINDOWS[0]).any(), "so do convolutions"


def test_the_price_of_a_measured_product_is_near_its_time():
    profile = replace(load_profile("cpu-core"), table=None)
    kernels = Kernels(
        flop=np.array([2.0 * 512 * 4096 * 1024]),
        memory_bytes=np.ones(1),
        rows=np.array([512.0]),
        columns=np.array([4096.0]),
        depth=np.array([1024.0]),
        samples=np.ones(1),
    )
    plain_s = profile.arithmetic_s(kernels, "forward")
    corrected_s = replace(profile, table=table(0.1)).arithmetic_s(kernels, "forward")

    assert corrected_s / plain_s == pytest.approx(np.exp(0.1), rel=0.05)


@settings(max_examples=15)
@given(rows=st.integers(1, 5000))
def test_channels_are_padded_to_tiles(rows):
    whole, half = padded_rows(np.array([float(rows), rows / 2]))

    assert rows <= whole < min(rows + 64, 2 * rows)
    assert whole / 2 <= half <= whole
    assert whole % 64 == 0 or np.log2(whole) % 1 == 0


def arithmetic_s(profile, phase, *sizes, **window):
    return profile.arithmetic_s(convolution(ConvolutionWindow(**window), *sizes), phase)[0]


def test_one_dimensional_windows_cost_what_inception_shows():
    """Large sizes have no edges: the cost is that of the constant alone."""
    profile, sizes = replace(load_profile("p100"), table=None), (4096, 1e6, 7 * 4096)
    slow, square = (
        arithmetic_s(profile, "forward", *sizes, positions=7, one_dimensional=flag) for flag in (True, False)
    )

    assert slow / square == pytest.approx(1.55, rel=0.01)


@pytest.mark.parametrize("name", ["p100", "titanx", "v100-16gb"])
def test_activation_gradients_of_strided_windows_pay_for_input_positions(name):
    """Few channels are summed over: writing all input positions outweighs the products."""
    profile = replace(load_profile(name), table=None)
    ratio = [
        arithmetic_s(profile, "activation_gradient", 256, 12544, depth, 32, positions=1, stride=4)
        / arithmetic_s(profile, "activation_gradient", 256, 12544, depth, 32, positions=1)
        for depth in (128, 2048)
    ]

    assert ratio[0] > ratio[1] > 1


def test_a_gradient_of_an_image_of_one_channel_is_scattered():
    """DeepBench, P100: 16 images, 1 to 32 channels, 5 x 20, stride 2 x 2: 0.16 of the peak."""
    profile = load_profile("p100").for_single_kernels()
    seconds = arithmetic_s(profile, "activation_gradient", 1, 431024, 3200, 16, positions=100, stride=4)

    assert 2 * 431024 * 3200 / seconds / profile.peak_flop_per_s == pytest.approx(0.16, rel=0.2)


def test_another_arithmetic_is_named_behind_the_profile():
    single, half = load_profile("v100-16gb"), load_profile("v100-16gb@float16")

    assert (half.name, half.arithmetic, half.element_bytes) == ("v100-16gb@float16", "float16", 2)
    assert half.peak_flop_per_s == pytest.approx(125e12)
    assert single.element_bytes == 4
    with pytest.raises(ValueError, match="knows no arithmetic 'float8'; known: float32, float16"):
        load_profile("v100-16gb@float8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table": "rows columns\n"}, "needs the columns phase rows"),
        ({"table": "phase rows columns depth window stride correction\nforward 1 2 x 0 1 0.1\n"}, "row 1 must be"),
        ({"table": "phase rows columns depth window stride correction\n"}, "between 1 and 5,000 rows"),
    ],
)
def test_a_spoiled_table_is_refused_in_one_line(tmp_path, change, message):
    import yaml

    from hwprofiles.compute.profile_file import catalogue

    content = yaml.safe_load(catalogue()["p100"].read_text())
    content["kernels"] |= change
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError, match=f"kernels.table: .*{message}") as caught:
        load_profile(str(path))
    assert "\n" not in str(caught.value)
