"""Collectives on parallel rings and on chains, carried out on buffers of integers."""

import numpy as np
import pytest
from collective_buffers import carry_out, pieces_of
from hypothesis import given, settings, strategies as st

from simulator.collectives.messages import messages_of
from simulator.collectives.parallel_rings import chain_rounds, parallel_rings


@st.composite
def ring_sets(draw):
    count = draw(st.integers(2, 6))
    orders = draw(st.lists(st.permutations(range(count)), min_size=1, max_size=3))
    return np.array(orders), np.random.default_rng(draw(st.integers(0, 2**32)))


@settings(max_examples=20, deadline=None)
@given(ring_sets())
def test_all_reduce_leaves_the_sum_everywhere(case):
    orders, rng = case
    step = parallel_rings(orders)
    held = rng.integers(0, 1000, (orders.shape[1], pieces_of([step])))

    assert (carry_out([step], held.copy()) == held.sum(axis=0)).all()
    assert (np.bincount(step.source) == len(orders)).all()


@settings(max_examples=20, deadline=None)
@given(ring_sets())
def test_halves_of_the_all_reduce(case):
    """Reduce-scatter leaves the sum of a chunk at its place in the ring, from where all-gather gives it to all."""
    orders, rng = case
    scatter, gather = (parallel_rings(orders, name) for name in ("reduce-scatter", "all-gather"))
    held = rng.integers(0, 1000, (orders.shape[1], pieces_of([scatter])))
    total = held.sum(axis=0)
    scattered = carry_out([scatter], held.copy())
    for ring, order in enumerate(orders):
        chunks = ring * len(order) + np.arange(len(order))
        assert (scattered[order, chunks] == total[chunks]).all()
    assert (carry_out([gather], scattered) == total).all()


@given(st.permutations(range(5)))
def test_a_chain_leaves_the_sum_everywhere(order):
    held = np.arange(5)[:, None] ** 2
    rounds = chain_rounds(np.array(order))

    assert (carry_out(rounds, held.copy()) == held.sum(axis=0)).all()
    assert len(messages_of(rounds, 5).source) == 8


@pytest.mark.parametrize("rings", [1, 4])
def test_the_buffer_is_divided_among_rings(rings):
    step = parallel_rings(np.tile(np.arange(4), (rings, 1)))
    assert step.traffic.sent * rings == pytest.approx(2 * 3 / 4)
