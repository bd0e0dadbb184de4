"""The paper's own tables and search: its examples, its search step by step, and its Table 2."""

import numpy as np
import pytest
import torch

from executor.compression.printed import TABLE_2_WAYS, table_2
from executor.compression.published import PUBLISHED, published_type
from groundwork.errors import ConfigError

NORMALISED = ("dynamic-tree", "linear")


def bisected(route, low=0.1, root=0.45, high=1.0):
    """The number at the end of a route through the tree that is bisected first at 0.45."""
    number = root
    for bit in route:
        low, high = (number, high) if bit == "1" else (low, number)
        number = (low + high) / 2
    return number


def searched(table, number, start, last):
    """What six steps of a binary search find in a sorted table; a number above the last pivot goes down to it."""
    pivot, lower, upper = start, 0, last
    for step in (32, 16, 8, 4, 2, 1):
        if number > table[pivot]:
            lower, pivot = pivot, pivot + step
        else:
            upper, pivot = pivot, pivot - step
    if lower == pivot:
        return table[pivot] if abs(table[pivot] - number) < table[upper] - number else table[upper]
    return table[pivot] if table[pivot] - number < abs(table[lower] - number) else table[lower]


def full_table(name):
    """All values in order, as often as bits stand for them."""
    if name == "dynamic-tree":
        leaves = [bisected(f"{k:0{bits}b}") / 10 ** (6 - bits) for bits in range(6, 0, -1) for k in range(2**bits)]
        return sorted(leaves)
    if name == "linear":
        return [k / 127 for k in range(128)]
    digits = [k / 10 for k in range(16)]
    if name == "static-tree":
        digits = [
            0.1,
            *(bisected(f"{k:0{bits}b}"[:bits]) if bits else 0.45 for bits in range(4) for k in range(2**bits)),
        ]
    return sorted(digit / 10**exponent for digit in digits for exponent in range(8))


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_search_is_the_published_one_step_by_step(name):
    table = np.array(full_table(name), dtype=np.float32)
    assert len(table) == (126 if name == "dynamic-tree" else 128)
    numbers = np.concatenate([np.random.default_rng(0).uniform(2e-6, 0.99, 2000), 10 ** np.linspace(-5.5, -0.01, 500)])
    numbers = numbers.astype(np.float32)
    start, last = (63, 125) if name == "dynamic-tree" else (64, 128)
    padded = np.append(table, np.float32(np.inf))
    expected = np.array([searched(padded, number, start, last) for number in numbers])

    kind = published_type(name)
    values = torch.from_numpy(np.append(numbers, np.float32(1)))  # normalised by 1
    found = kind.decompress(kind.compress(values).message, values.shape).numpy()[:-1]

    sure = np.abs(numbers[:, None] - (table[1:] + table[:-1]) / 2).min(axis=1) > 1e-8  # not half-way in float32
    assert sure.sum() > 2400
    np.testing.assert_allclose(found[sure], expected[sure], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "number", "printed"),
    [
        ("dynamic-tree", 0.2345678, 0.236719),
        ("static-tree", 0.2345678, 0.23125),
        ("mantissa", 0.2345678, 0.2),
        ("dynamic-tree", 0.0000234, 0.000019),
    ],
)
def test_examples_of_section_3_1(name, number, printed):
    values = published_type(name).table.values
    nearest = float(values[np.abs(values - number).argmin()])

    assert round(nearest, 6) == pytest.approx(printed, abs=1e-9)


@pytest.fixture(scope="module")
def found():
    return list(table_2(count=1_000_000))


def test_every_printed_error_is_answered_both_ways(found):
    assert len(found) == 4 * 4 * 2 * len(TABLE_2_WAYS)
    assert len({(each.claim.key, each.method) for each in found}) == len(found)


def test_relative_errors_of_table_2_within_15_percent_and_in_order(found):
    """A million numbers, whose maximum is 8 % below that of the paper's 25 million."""
    rows = [each for each in found if each.method == "as published" and each.claim.key[1] == "relative"]
    assert len(rows) == 16
    for each in rows:
        loose = each.claim.key[3] in NORMALISED
        assert each.ours == pytest.approx(float(each.claim.printed), rel=0.11 if loose else 0.01), each.claim.text
    for group in "ABCD":
        own = [each for each in rows if each.claim.key[2] == group]
        ours = [each.claim.key[3] for each in sorted(own, key=lambda each: each.ours)]
        printed = [each.claim.key[3] for each in sorted(own, key=lambda each: float(each.claim.printed))]
        if group in "AD":
            assert ours == printed
        else:  # linear's errors are 3 % above the static tree's in print, and rise with the maximum
            assert ours[0] == printed[0] == "dynamic-tree"
            assert ours[-1] == printed[-1] == "mantissa"


def test_our_types_err_less_than_those_of_the_paper(found):
    relative = [each for each in found if each.claim.key[1] == "relative"]
    ours = {each.claim.key: each.ours for each in relative if each.method == "our types"}
    theirs = {each.claim.key: each.ours for each in found if each.method == "as published"}

    assert len(ours) > 1
    assert all(value < theirs[key] for key, value in ours.items())


def test_bad_input_is_refused():
    with pytest.raises(ConfigError, match=r"published type must be one of dynamic-tree, .*, got 'one-bit'"):
        published_type("one-bit")
    with pytest.raises(ConfigError, match="count must be >= 1, got 0"):
        next(table_2(count=0))
