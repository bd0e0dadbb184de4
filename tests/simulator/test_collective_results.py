"""Every collective computes what it claims: its rounds, carried out on integer buffers."""

from itertools import pairwise

import numpy as np
import pytest
from collective_buffers import all_to_all, carry_out, group_of, pieces_of
from hypothesis import given, settings, strategies as st

from simulator.collectives.messages import messages_of
from simulator.collectives.schemes import ALL_GATHERS, ALL_REDUCES, BROADCASTS, REDUCE_SCATTERS, rank_rounds

RANKS = st.integers(1, 17)
SEEDS = st.integers(0, 2**32)


def buffers(count, pieces, seed):
    return np.random.default_rng(seed).integers(0, 2**40, (count, pieces))


@pytest.mark.parametrize("scheme", ALL_REDUCES)
@given(RANKS, st.integers(1, 4), st.integers(1, 8), SEEDS)
def test_all_reduces_leave_the_sum_everywhere(scheme, count, per_node, per_rack, seed):
    rounds = group_of(scheme, count, per_node, per_rack)
    held = buffers(count, pieces_of(rounds), seed)
    total = held.sum(axis=0)

    np.testing.assert_array_equal(carry_out(rounds, held), np.tile(total, (count, 1)))


@pytest.mark.parametrize("shape", [(2, 2, 2), (2, 3, 2), (3, 2, 4)])
def test_three_levels_are_used_where_racks_are_alike(shape):
    """Racks, nodes, devices: steps go up to the racks and back down, each on what the level below left."""
    racks, nodes, devices = shape
    count = int(np.prod(shape))
    rounds = group_of("hierarchical-3", count, devices, devices * nodes)
    held = buffers(count, pieces_of(rounds), 0)
    total = held.sum(axis=0)

    assert [step.repeats for step in rounds] == [devices - 1, nodes - 1, 2 * (racks - 1), nodes - 1, devices - 1]
    place = np.indices(shape).reshape(3, -1)
    for step, axis in zip(rounds, (2, 1, 0, 1, 2), strict=True):
        assert all(np.array_equal(place[other][step.source], place[other][step.target]) for other in {0, 1, 2} - {axis})
    np.testing.assert_array_equal(carry_out(rounds, held), np.tile(total, (count, 1)))


@pytest.mark.parametrize("name", REDUCE_SCATTERS)
@given(RANKS, SEEDS)
def test_reduce_scatters_leave_each_rank_its_piece(name, count, seed):
    held = buffers(count, count, seed)
    total = held.sum(axis=0)
    done = carry_out(REDUCE_SCATTERS[name](count), held) if count > 1 else held

    np.testing.assert_array_equal(np.diagonal(done), total)


@pytest.mark.parametrize("name", ALL_GATHERS)
@given(RANKS, SEEDS)
def test_all_gathers_give_every_rank_all_pieces(name, count, seed):
    held = buffers(count, count, seed)
    wanted = np.diagonal(held).copy()
    done = carry_out(ALL_GATHERS[name](count), held) if count > 1 else held

    np.testing.assert_array_equal(done, np.tile(wanted, (count, 1)))


@pytest.mark.parametrize("name", BROADCASTS)
@given(RANKS, SEEDS)
def test_broadcasts_give_rank_0_s_buffer_to_all(name, count, seed):
    rounds = BROADCASTS[name](count)
    held = buffers(count, pieces_of(rounds), seed)

    np.testing.assert_array_equal(carry_out(rounds, held.copy()), np.tile(held[0], (count, 1)))


@given(RANKS)
def test_all_to_all_brings_everyone_what_everyone_has_for_it(count):
    """Piece a p + b starts at rank a and ends at rank b."""
    held = np.where(np.arange(count)[:, None] == np.arange(count * count) // count, np.arange(count * count), -1)
    step = all_to_all(count)
    done = held.copy()
    for source, target, piece in zip(step.source, step.target, step.first_chunk(0), strict=True):
        assert held[source, piece] == piece
        done[target, piece] = held[source, piece]

    assert step.share == 1 / count
    for rank in range(count):
        assert set(range(rank, count * count, count)) <= set(done[rank])


def needs_by_brute_force(rounds, count):
    """What is in each piece of each rank's buffer, message by message, in time."""
    pieces, message = pieces_of(rounds), 0
    inside = [[set() for _ in range(pieces)] for _ in range(count)]
    own = [[True] * pieces for _ in range(count)]
    waits, carries_own, first, before = [], [], [], {}
    for step in rounds:
        fine = pieces // step.chunks
        for repeat in range(step.repeats):
            first.append(message)
            arriving = []
            for source, target, low, adds in zip(
                step.source, step.target, step.first_chunk(repeat), step.adds, strict=True
            ):
                span = range(low * fine, (low + step.width) * fine)
                waits.append(set().union(*(inside[source][piece] for piece in span)))
                waits[-1] |= {before[source, target]} if step.in_order and (source, target) in before else set()
                before[source, target] = message
                carries_own.append(any(own[source][piece] for piece in span))
                arriving.append((target, span, repeat < adds, message))
                message += 1
            for target, span, adds, which in arriving:
                for piece in span:
                    inside[target][piece] = {which} | (inside[target][piece] if adds else set())
                    own[target][piece] = own[target][piece] and adds
    return waits, carries_own, [set().union(*row) for row in inside], first


@pytest.mark.parametrize("scheme", ALL_REDUCES)
@settings(max_examples=12)
@given(st.integers(2, 13))
def test_messages_wait_for_exactly_what_they_carry(scheme, count):
    rounds = group_of(scheme, count)
    messages = messages_of(rounds, count)
    waits, own, last, first = needs_by_brute_force(rounds, count)

    assert set(zip(*(part.tolist() for part in messages.waits), strict=True)) == {
        (late, early) for late, row in enumerate(waits) for early in row
    }
    assert messages.own.tolist() == np.flatnonzero(own).tolist()
    assert set(zip(*(part.tolist() for part in messages.last), strict=True)) == {
        (rank, message) for rank, row in enumerate(last) for message in row
    }
    assert messages.step_start.tolist() == [*first, len(waits)]
    assert len(messages.waits[0]) == sum(map(len, waits))


@pytest.mark.parametrize("count", [2, 3, 8, 17])
def test_a_ring_s_flow_waits_for_the_flow_of_the_rank_before_alone(count):
    """Rank r at step s waits for rank r - 1 at step s - 1 and nothing else."""
    messages = messages_of(group_of("ring", count), count)
    late, early = messages.waits

    assert late.tolist() == list(range(count, 2 * count * (count - 1)))
    np.testing.assert_array_equal(early, late - count + np.where(late % count == 0, count - 1, -1))


@pytest.mark.parametrize("count", range(2, 34))
def test_a_double_tree_sends_every_piece_up_and_down_once(count):
    """2 (p - 1) buffers in all; no rank sends or receives more than two, as no rank is inside both trees."""
    rounds = group_of("double-tree", count)
    sent, received = np.zeros(count), np.zeros(count)
    for step in rounds:
        np.add.at(sent, step.source, step.share)
        np.add.at(received, step.target, step.share)

    assert sent.sum() == pytest.approx(2 * (count - 1))
    # an odd number leaves one rank that is inside both, near the root of one
    assert max(sent.max(), received.max()) <= (2 if count % 2 == 0 else 2.5)


@given(st.integers(2, 40))
def test_halving_takes_2_log_p_steps_and_two_more_where_p_is_no_power_of_two(count):
    rounds, log = group_of("halving", count), count.bit_length() - 1
    power = 1 << log

    assert len(rounds) == 2 * log + 2 * (count != power)
    shares = [step.share for step in rounds if len(step.source) == power]
    if count == power:
        assert sum(shares) == pytest.approx(2 * (count - 1) / count)
        assert all(a >= b for a, b in pairwise(shares[:log]))


def test_groups_of_one_shape_share_their_rounds():
    """Two nodes of four, cut into pairs across and into pairs within: equal patterns are one object."""
    nodes = np.repeat([0, 1], 4)
    across = rank_rounds("ring", np.array([[0, 4], [1, 5]]), nodes, nodes * 0)

    assert across[0] is across[1]
