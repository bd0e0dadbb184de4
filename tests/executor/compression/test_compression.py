"""Data types of messages: round trips, bounds, symmetry, extremes, and every way to compute them alike."""

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from compression_cases import (
    ALL_TYPES,
    FEEDBACK_TYPES,
    FEW,
    FLOAT32_MAX,
    FLOAT_TYPES,
    TABLE_TYPES,
    assert_same_bits,
    tensors,
)
from hypothesis import given, strategies as st
from reference_compression import compress, decompress

from executor.compression.registry import DATA_TYPES, TableType, data_type
from groundwork.errors import ConfigError
from planner.compression.data_types import COMPRESSIONS, compression

SLACK = 1 + 2.0**-20
"""Rounding of the quotient and of the product to float32, on top of the bounds of exact arithmetic."""


def encode(kind, array, residual=None):
    """Message of an array; types that need one get a residual of zeros."""
    tensor = torch.from_numpy(np.array(array, dtype=np.float32))
    if residual is None and kind.feedback:
        residual = torch.zeros_like(tensor)
    return kind.compress(tensor, residual).message


def round_trip(spec, array):
    """What an array becomes."""
    kind = data_type(spec)
    return kind.decompress(encode(kind, array), np.shape(array)).numpy()


@pytest.mark.parametrize("spec", ALL_TYPES)
@FEW
@given(array=tensors())
def test_torch_equals_numpy_bit_for_bit(spec, array):
    kind = data_type(spec)
    message = encode(kind, array)
    expected = compress(kind.spec, array)

    np.testing.assert_array_equal(message.numpy(), expected)
    assert len(expected) == kind.compressed_bytes(len(array))
    decoded = kind.decompress(message, array.shape).numpy()
    assert_same_bits(decoded, decompress(kind.spec, expected, len(array)))


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_triton_kernels_equal_the_compiled_ones():
    """On a processor, by Triton's interpreter, which must be asked for before Triton is imported."""
    script = """
import torch
from executor.compression.cpu_kernels import CpuKernels
from executor.compression.registry import data_type
from executor.compression.triton_kernels import TritonKernels
torch.manual_seed(0)
for spec in ("dynamic-tree", "static-tree", "linear", "mantissa"):
    table = data_type(spec).table
    for count, block in ((1, 1), (5000, 5000), (5000, 64), (9001, 4096)):
        for size in (1.0, 0.0, 1e-41, 1e37):
            values = torch.randn(count) * size
            scales = CpuKernels().block_maxima(values, block)
            out = []
            for kernels in (CpuKernels(), TritonKernels()):
                codes, decoded = torch.empty(count, dtype=torch.uint8), torch.empty(count)
                kernels.compress_table(values, scales, block, table, codes)
                kernels.decompress_table(codes, scales, block, table, decoded)
                out.append((codes, decoded.view(torch.int32)))
            assert all(map(torch.equal, *out)), (spec, count, block, size)
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=100)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("spec", ALL_TYPES)
def test_gpu_equals_numpy_bit_for_bit(spec):
    kind = data_type(spec)
    numbers = np.random.default_rng(0).standard_normal(100_003).astype(np.float32)
    for size in (1.0, 0.0, 1e-41, 1e37):
        array = numbers * np.float32(size)
        tensor = torch.from_numpy(array).cuda()
        message = kind.compress(tensor, torch.zeros_like(tensor) if kind.feedback else None).message
        expected = compress(kind.spec, array)
        np.testing.assert_array_equal(message.cpu().numpy(), expected)
        decoded = kind.decompress(message, array.shape).cpu().numpy()
        assert_same_bits(decoded, decompress(kind.spec, expected, len(array)))


@pytest.mark.parametrize("spec", [spec for spec in ALL_TYPES if "block=" in spec])
@FEW
@given(array=tensors(low=1, high=64))
def test_one_block_is_the_whole_tensor(spec, array):
    whole = compression(spec).name + (":normalised=1" if "normalised" in spec else "")
    np.testing.assert_array_equal(encode(data_type(spec), array), encode(data_type(whole), array))


@given(array=tensors(low=65, high=200))
def test_blocks_are_scaled_each_by_itself(array):
    blocks = [round_trip("dynamic-tree", array[at : at + 64]) for at in range(0, len(array), 64)]
    assert_same_bits(round_trip("dynamic-tree:block=64", array), np.concatenate(blocks))


@pytest.mark.parametrize("spec", [*(spec for spec in TABLE_TYPES if "normalised=0" in spec), "static-tree", "mantissa"])
def test_values_of_the_table_come_back_exactly(spec):
    """Of all 256 bytes, where nothing is scaled."""
    kind = data_type(spec)
    values = np.concatenate([kind.table.values, -kind.table.values])
    assert_same_bits(round_trip(spec, values), values)


@given(array=tensors(low=1))
def test_what_linear_quantization_made_it_makes_again(array):
    once = round_trip("linear", array)
    assert_same_bits(round_trip("linear", once), once)


@pytest.mark.parametrize("spec", [*TABLE_TYPES, *FLOAT_TYPES])
@FEW
@given(array=tensors(low=2))
def test_order_is_kept_within_a_scale_and_signs_mirror(spec, array):
    decoded = round_trip(spec, array)
    assert_same_bits(round_trip(spec, -array), -decoded)
    if "block" not in spec:
        assert np.all(np.diff(decoded[np.argsort(array, kind="stable")]) >= 0)


def worst_error(name, share):
    """Largest error that exact arithmetic allows a magnitude, both as shares of the table's top decade."""
    if name == "linear":
        return 0.5 / 127
    if name == "mantissa":  # multiples of a tenth of the decade up to 1.5 decades
        decade = next((e for e in range(7, -1, -1) if share <= 1.5 * 10.0**-e), 0)
        return 0.5 * 10.0 ** -(decade + 1)
    lowest, leaves = (6, lambda e: 2 ** (6 - e)) if name == "dynamic-tree" else (7, lambda e: 16)
    decade = next((e for e in range(lowest, -1, -1) if share <= 10.0**-e), 0)
    if share <= 10.0 ** -(lowest + 1):
        return share  # zero is at hand
    first_leaf = 0.1 * 10.0**-lowest + 0.9 * 10.0**-lowest / 16
    if name == "static-tree" and share < first_leaf:
        return share  # and stands for the smallest leaf
    return 0.45 * 10.0**-decade / leaves(decade)


@pytest.mark.parametrize("name", ["dynamic-tree", "static-tree", "linear", "mantissa"])
@given(data=st.data())
def test_error_stays_below_the_bound_of_the_type(name, data):
    """Half the interval that a number falls into: no leaf's middle is farther than its ends."""
    share = data.draw(st.floats(-1, 1, width=32) | st.floats(-8, 0).map(lambda power: np.float32(10.0**power)))
    scale = np.float32(data.draw(st.sampled_from([1.0, 1e-30, 3e30])))
    value = np.float32(share) * scale
    decoded = round_trip(f"{name}:normalised=1", [scale, value])[1]

    assert abs(float(decoded) - float(value)) <= worst_error(name, abs(share)) * scale * SLACK + 1e-7 * scale * abs(
        share
    )


@pytest.mark.parametrize(
    ("spec", "relative", "absolute"), [("float16", 2.0**-11, 2.0**-25), ("bfloat16", 2.0**-8, 1e-40)]
)
@given(array=tensors(largest=65504))
def test_half_width_floats_round_by_at_most_half_a_place(spec, relative, absolute, array):
    exact = array.astype(np.float64)
    assert np.all(np.abs(round_trip(spec, array) - exact) <= np.abs(exact) * relative + absolute)


@given(array=tensors())
def test_float32_is_exact(array):
    assert_same_bits(round_trip("float32", array), array)


@pytest.mark.parametrize("spec", [*TABLE_TYPES, *FLOAT_TYPES])
def test_zeros_and_denormals_come_back(spec):
    zeros = np.array([0.0, -0.0] * 40, dtype=np.float32)
    assert_same_bits(round_trip(spec, zeros), zeros)
    tiny = np.array([1e-45, -1e-45, 0.0] * 30, dtype=np.float32)
    assert np.all(np.abs(round_trip(spec, tiny)) <= np.float32(1e-45))


@pytest.mark.parametrize("spec", TABLE_TYPES + FLOAT_TYPES)
def test_largest_numbers_become_the_largest_of_the_type(spec):
    array = np.array([FLOAT32_MAX, -FLOAT32_MAX, 1.0], dtype=np.float32)
    kind = data_type(spec)
    if isinstance(kind, TableType):
        values = kind.table.values
        top = values[-1] if not kind.spec["normalised"] else values[values <= 1][-1] * np.float32(FLOAT32_MAX)
    else:
        top = torch.finfo(getattr(torch, kind.name)).max
    np.testing.assert_array_equal(round_trip(spec, array)[:2], np.array([top, -top], dtype=np.float32))


@pytest.mark.parametrize("spec", [*FEEDBACK_TYPES, "dynamic-tree:block=64", "bfloat16"])
def test_feedback_loses_nothing(spec):
    """What all messages say, and the residual, add up to all that was to be said."""
    generator = np.random.default_rng(5)
    kind, residual = data_type(spec), torch.zeros(7, 31)
    said, meant = np.zeros((7, 31)), np.zeros((7, 31))
    for _ in range(20):
        gradient = generator.standard_normal((7, 31)).astype(np.float32)
        encoded = kind.compress(torch.from_numpy(gradient), residual)
        said += kind.decompress(encoded.message, encoded.shape).numpy()
        meant += gradient
    np.testing.assert_allclose(said + residual.numpy(), meant, atol=1e-4)


@pytest.mark.parametrize("spec", ["one-bit", "one-bit:block=64"])
@given(array=tensors(low=1, largest=1e4))
def test_one_bit_keeps_the_mean_of_either_sign(spec, array):
    decoded = round_trip(spec, array).astype(np.float64)
    for at in range(0, len(array), 64 if "block" in spec else len(array)):
        part = slice(at, at + 64 if "block" in spec else None)
        for side in (array[part] >= 0, array[part] < 0):
            if side.any():
                mean = array[part][side].mean(dtype=np.float64)
                np.testing.assert_allclose(decoded[part][side], mean, rtol=1e-6, atol=1e-44)


def test_threshold_sends_the_largest_first_and_keeps_the_rest():
    kind = data_type("threshold", threshold=1.0, every=2)
    residual = torch.tensor([0.0, 0.75, 0.0, 0.0, 0.0, 0.0])
    tensor = torch.tensor([1.5, 0.5, -3.0, 0.9, 2.0, -1.25])

    encoded = kind.compress(tensor, residual)

    assert kind.decompress(encoded.message, encoded.shape).tolist() == [1.0, 0.0, -1.0, 0.0, 1.0, 0.0]
    assert residual.tolist() == pytest.approx([0.5, 1.25, -2.0, 0.9, 1.0, -1.25])


@given(array=tensors(low=1, largest=10))
def test_threshold_with_room_for_all_leaves_nothing_unsent_above_it(array):
    kind, residual = data_type("threshold", threshold=0.5, every=1), torch.zeros(len(array))
    decoded = kind.decompress(encode(kind, array, residual), array.shape).numpy()

    np.testing.assert_array_equal(decoded, np.where(np.abs(array) >= 0.5, np.copysign(np.float32(0.5), array), 0))
    np.testing.assert_array_equal(residual.numpy(), array - decoded)


@pytest.mark.parametrize(
    ("spec", "elements", "size"),
    [
        ("dynamic-tree", 1000, 1004),
        ("dynamic-tree:block=64", 1000, 1000 + 16 * 4),
        ("static-tree", 1000, 1000),
        ("linear", 1, 5),
        ("one-bit", 1001, 8 + 126),
        ("one-bit:block=64", 1001, 16 * 8 + 126),
        ("threshold:every=10", 1001, 4 + 101 * 4),
        ("float16", 1000, 2000),
        ("bfloat16", 1000, 2000),
        ("float32", 1000, 4000),
    ],
)
def test_sizes_are_those_of_the_format(spec, elements, size):
    assert data_type(spec).compressed_bytes(elements) == size
    assert compression(spec).compressed_bytes(np.array([elements, 0]))[0] == size


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_floats_are_read_as_float32_and_given_back(dtype):
    kind, tensor = data_type("dynamic-tree"), torch.randn(6, 5, generator=torch.Generator().manual_seed(1)).to(dtype).T
    encoded = kind.compress(tensor.requires_grad_())

    assert encoded.shape == (5, 6)
    expected = kind.compress(tensor.detach().float().contiguous()).message
    assert torch.equal(encoded.message, expected)
    decoded = kind.decompress(encoded.message, encoded.shape, dtype)
    assert decoded.dtype == dtype
    assert torch.equal(decoded, kind.decompress(expected, (5, 6)).to(dtype))


@pytest.mark.parametrize("spec", ALL_TYPES)
def test_buffers_can_be_used_again(spec):
    kind, array = data_type(spec), np.linspace(-2, 1, 150, dtype=np.float32)
    message, numbers = torch.full((kind.compressed_bytes(150),), 255, dtype=torch.uint8), torch.full((10, 15), 9.0)
    residual = torch.zeros(150) if kind.feedback else None

    assert kind.compress(torch.from_numpy(array), residual, out=message).message is message
    assert torch.equal(message, encode(kind, array))
    assert kind.decompress(message, (10, 15), out=numbers) is numbers
    assert_same_bits(numbers.numpy().ravel(), round_trip(spec, array))

    inside = torch.cat([torch.zeros(1, dtype=torch.uint8), message])[1:]
    assert torch.equal(kind.decompress(inside, (10, 15)), numbers)
    with pytest.raises(ConfigError, match="out must begin at a multiple of 4 bytes, got 1"):
        kind.compress(torch.from_numpy(array), residual, out=inside)


def test_table_too_fine_for_the_lookup_is_searched():
    spec = compression("linear", normalised=0)
    fine = 1e-3 * np.arange(128) + [0, *[1] * 127]
    values = np.random.default_rng(0).uniform(-1.2, 1.2, 500).astype(np.float32)
    kind = TableType(spec, fine)
    decoded = kind.decompress(encode(kind, values), values.shape).numpy()

    nearest = fine[np.abs(np.abs(values)[:, None] - fine).argmin(axis=1)]
    np.testing.assert_allclose(decoded, np.copysign(nearest, values), rtol=1e-6)


def test_every_name_has_an_encoder_and_a_text_that_reads_back():
    assert list(DATA_TYPES) == list(COMPRESSIONS)
    for spec in ALL_TYPES:
        assert compression(compression(spec).text) == compression(spec) == data_type(compression(spec)).spec


@pytest.mark.parametrize("spec", ALL_TYPES)
@pytest.mark.parametrize(
    ("value", "name"), [(np.nan, "NaN"), (np.inf, r"\+infinity"), (-np.inf, "-infinity")], ids=["nan", "inf", "-inf"]
)
def test_what_is_not_finite_is_refused_by_name(spec, value, name):
    kind, tensor = data_type(spec), torch.zeros(100)
    tensor[77] = value
    residual = torch.ones(100) if kind.feedback else None
    with pytest.raises(ConfigError, match=f"{kind.name}: tensor must be finite, got {name} at element 77 of 100"):
        kind.compress(tensor, residual)
    assert residual is None or torch.equal(residual, torch.ones(100))


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (
            lambda: data_type("linear").compress(torch.arange(3)),
            "linear: tensor must be floating point, got torch.int64",
        ),
        (lambda: data_type("one-bit").compress(torch.ones(3)), "one-bit: residual must be given"),
        (lambda: data_type("one-bit").compress(torch.ones(3), torch.ones(4)), r"residual must be .* shape \(3,\)"),
        (
            lambda: data_type("linear").decompress(torch.zeros(3, dtype=torch.uint8), (3,)),
            r"linear: message must be 7 bytes in a row for 3 elements, got torch.uint8 of shape \(3,\)",
        ),
        (
            lambda: data_type("linear").decompress(torch.zeros(7, dtype=torch.uint8), (3,), out=torch.zeros(4)),
            "linear: out",
        ),
        (lambda: data_type("linear").compress(torch.ones(3), out=torch.zeros(7)), "message must be 7 bytes in a row"),
        (lambda: data_type("dynamic_tre"), "got 'dynamic_tre'; did you mean 'dynamic-tree'"),
        (lambda: data_type("float8"), "data type must be one of dynamic-tree, .*, got 'float8'; did you mean 'float"),
        (lambda: data_type("static-tree", offset=38), "static-tree:offset must be an integer from -28 to 37, got 38"),
        (lambda: data_type("static-tree:offset=x"), "offset must be an integer from -28 to 37, got 'x'"),
        (lambda: data_type("mantissa", offset=0.5), "mantissa:offset must be an integer"),
        (lambda: data_type("dynamic-tree", offset=1), "dynamic-tree:offset must be 0 with normalised=1"),
        (lambda: data_type("mantissa", block=64), "mantissa:block must be 0 with normalised=0"),
        (lambda: data_type("linear:block=100"), "linear:block must be 0 .* or a power of two from 64 to 65536"),
        (lambda: data_type("dynamic-tree:top=0.1"), "top must be a number above 0.1 and up to 1"),
        (lambda: data_type("threshold", threshold=0), "threshold:threshold must be a number from"),
        (lambda: data_type("linear:top=1"), "parameter of linear must be one of normalised, offset, block, got 'top'"),
        (lambda: data_type("linear:block=64", block=64), "each parameter once, as name=number, got 'block=64'"),
        (lambda: data_type("linear").compressed_bytes(-1), "elements must be >= 0, got -1"),
        (lambda: TableType(compression("linear"), [0, 2, 1]), "table must be sorted"),
    ],
)
def test_bad_input_is_refused(attempt, message):
    with pytest.raises(ConfigError, match=message):
        attempt()
