"""Cycles over four devices, chosen by looking at all choices, are those that the solver of integer programs chooses."""

import numpy as np
import pytest

from planner.topology import node_rings


@pytest.mark.parametrize("size", [3, 4])
def test_choices_of_few_cycles_are_those_of_the_solver(size, monkeypatch):
    random = np.random.default_rng(size)
    found = 0
    for _ in range(40):
        half = np.triu(random.integers(0, 5, (size, size)), 1)
        cables = tuple(map(tuple, (half + half.T).tolist()))
        looked_at = node_rings._most_cycles.__wrapped__(cables)
        with monkeypatch.context() as patch:
            patch.setattr(node_rings, "_FEW_CYCLES", 0)
            solved = node_rings._most_cycles.__wrapped__(cables)
        assert looked_at.tolist() == solved.tolist()
        found += len(looked_at) > 0
    assert found > 5
