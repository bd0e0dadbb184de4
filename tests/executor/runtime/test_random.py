"""Random numbers by position, against SplitMix64 in unsigned integers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from executor.runtime import positional_random
from executor.runtime.boxes import Box, whole_box
from executor.runtime.positional_random import _fill_tensor, _runs, _signed, key_of, uniform

GOLDEN = 0x9E3779B97F4A7C15


def mixed(value):
    """The finaliser of SplitMix64, as its authors print it."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % 2**64
    return value ^ (value >> 31)


def reference(key, whole, bits):
    numbers = [mixed((key + i * GOLDEN) % 2**64) >> (64 - bits) for i in range(int(np.prod(whole)))]
    return np.array(numbers).reshape(whole) / 2**bits


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, 24), (torch.float64, 53)])
@pytest.mark.parametrize("chunk", [1, 7, 2**14])
@settings(max_examples=9)
@given(data=st.data())
def test_every_box_holds_the_numbers_of_its_positions(dtype, bits, chunk, data):
    """However many are made at once."""
    whole = tuple(data.draw(st.lists(st.integers(1, 6), max_size=4)))
    ends = [sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size)))) for size in whole]
    box = Box(tuple(low for low, _ in ends), tuple(high for _, high in ends))
    key = key_of(data.draw(st.integers(0, 2**64 - 1)), 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(positional_random, "_CHUNK", chunk)
        patch.setattr(positional_random, "_DEVICE_CHUNK", chunk)
        got = uniform(key, box, whole, dtype=dtype, device="cpu")
        starts, run = _runs(box, whole, torch.device("cpu"))
        of_tensors = torch.empty(len(starts), run, dtype=dtype)
        _fill_tensor(of_tensors, starts * _signed(GOLDEN) + key, bits)
    expected = reference(key, whole, bits)[box.within(whole_box(whole))]
    assert got.dtype == dtype
    assert np.array_equal(got.double().numpy(), expected)
    assert np.array_equal(of_tensors.view(box.shape).double().numpy(), expected)  # as on other devices


@given(words=st.lists(st.integers(-(2**63), 2**64 - 1), max_size=4))
def test_keys_fold_their_words(words):
    key = 0
    for word in words:
        key = mixed(((key ^ (word % 2**64)) + GOLDEN) % 2**64)
    assert key_of(*words) % 2**64 == key
