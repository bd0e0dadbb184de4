"""Kernels compiled for a processor give the bits of those that say plainly what is computed."""

import numpy as np
import pytest
import torch
from compression_cases import FEW, assert_same_bits, tensors
from hypothesis import given, strategies as st

from executor.compression.cpu_kernels import CpuKernels
from executor.compression.registry import data_type
from executor.compression.torch_kernels import TorchKernels

COMPILED, PLAIN = CpuKernels(), TorchKernels()


@pytest.mark.parametrize("spec", ["dynamic-tree", "static-tree:offset=-28", "linear", "mantissa"])
@FEW
@given(array=tensors(low=1), block=st.sampled_from([1, 64, 128, 1000]))
def test_compiled_kernels_equal_the_plain_ones(spec, array, block):
    table, values = data_type(spec).table, torch.from_numpy(array)
    results = []
    for kernels in (COMPILED, PLAIN):
        maxima = kernels.block_maxima(values, block)
        codes, decoded = torch.empty(len(values), dtype=torch.uint8), torch.empty(len(values))
        kernels.compress_table(values, maxima, block, table, codes)
        kernels.decompress_table(codes, maxima, block, table, decoded)
        results.append((maxima.numpy(), codes.numpy(), decoded.numpy()))
    assert_same_bits(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
    assert_same_bits(results[0][2], results[1][2])


@FEW
@given(array=tensors(low=1), block=st.sampled_from([1, 2, 3, 5, 7, 64, 1000]))
def test_compiled_signs_equal_the_plain_ones(array, block):
    values, count = torch.from_numpy(array), len(array)
    results = []
    for kernels in (COMPILED, PLAIN):
        means = torch.empty(-(-count // block), 2)
        packed, decoded = torch.empty(-(-count // 8), dtype=torch.uint8), torch.empty(count)
        kernels.compress_signs(values, block, means, packed)
        kernels.decompress_signs(means, packed, block, decoded)
        results.append((means.numpy(), packed.numpy(), decoded.numpy()))
    assert_same_bits(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
    assert_same_bits(results[0][2], results[1][2])


@FEW
@given(array=tensors(), threshold=st.floats(0, 4, width=32))
def test_compiled_places_are_those_of_numpy(array, threshold):
    """Also of numbers that are the threshold to the bit, or beside it; and behind 1,024 others, a chunk."""
    limit = np.float32(threshold)
    beside = np.array([limit, -limit, np.nextafter(limit, np.float32(9)), np.nextafter(limit, np.float32(-9))])
    numbers = np.concatenate([array, beside, np.zeros(1024, np.float32), beside, array]).astype(np.float32)
    for kernels in (COMPILED, PLAIN):
        found = kernels.positions_above(torch.from_numpy(numbers), float(limit))
        np.testing.assert_array_equal(found.numpy(), np.flatnonzero(np.abs(numbers) >= limit))
