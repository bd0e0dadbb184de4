import numpy as np
import pytest

from planner.elimination import minplus
from planner.elimination.minplus import fold_columns, fold_rows, product
from simulator.compiled import jit


@pytest.fixture(autouse=True, params=["compiled", "plain"])
def _either_form(request, monkeypatch):
    """Small products are formed in plain Python, sooner than numba is loaded."""
    monkeypatch.setattr(jit, "pays", lambda plain_s: request.param == "compiled")


def tables(rows, depth, columns, seed=0):
    rng = np.random.default_rng(seed)
    left, right = rng.random((rows, depth)), rng.random((depth, columns))
    left[rng.random(left.shape) < 0.3] = np.inf
    return left, rng.random(depth), right


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 4, 5), (7, 3, 9), (5, 67, 13), (2, 129, 1), (30, 300, 20), (4, 0, 3)])
@pytest.mark.parametrize("per_thread", [minplus.PER_THREAD, 1])
def test_product_equals_its_definition(shape, per_thread, monkeypatch):
    """To the last bit, on one thread or several, whatever is left of blocks of 4 and 64 or skipped."""
    monkeypatch.setattr(minplus, "PER_THREAD", per_thread)
    left, middle, right = tables(*shape)
    expected = ((left + middle)[:, :, None] + right).min(axis=1, initial=np.inf)
    np.testing.assert_array_equal(product(left, middle, right), expected)


@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (9, 7), (2, 30)])
def test_folds_equal_their_definitions(shape):
    table, vector, _ = tables(*shape, 1)
    np.testing.assert_array_equal(fold_columns(table, vector), (table + vector).min(axis=1))
    np.testing.assert_array_equal(fold_rows(vector, np.ascontiguousarray(table.T)), (table + vector).min(axis=1))


def test_infinite_rows_stay_infinite():
    left = np.full((2, 3), np.inf)
    assert np.all(product(left, np.zeros(3), np.ones((3, 2))) == np.inf)
