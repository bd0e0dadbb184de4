"""All-reduce schemes carried out on small buffers: every scheme leaves the sum everywhere, at textbook cost."""

import numpy as np
import pytest
from collective_buffers import device_rounds
from hypothesis import given, strategies as st

from groundwork.errors import ConfigError

RINGS = ("ring", "hierarchical")
SCHEMES = ("ring", "ps", "ps-spread", "tree", "hierarchical")


def messages(step):
    return list(zip(step.source.tolist(), step.target.tolist(), strict=True))


def whole_buffers(plan, held):
    """Rounds of whole buffers: those before the middle add up, the others spread the result."""
    for at, step in enumerate(plan):
        assert (step.share, step.repeats) == (1.0, 1)
        sent = {pair: held[pair[0]].copy() for pair in messages(step)}
        for (_, target), buffer in sent.items():
            held[target] = held[target] + buffer if at < len(plan) // 2 else buffer


def owners(plan, held):
    """Two direct rounds: to every owner its chunk, then from every owner its chunk."""
    devices = sorted(held)
    chunk = {device: np.array_split(np.arange(len(held[device])), len(devices))[i] for i, device in enumerate(devices)}
    assert [(step.share, step.repeats) for step in plan] == [(1 / len(devices), 1)] * 2
    for step, adds in zip(plan, (True, False), strict=True):
        before = {device: buffer.copy() for device, buffer in held.items()}
        for source, target in messages(step):
            piece = chunk[target if adds else source]
            held[target][piece] = before[source][piece] + (held[target][piece] if adds else 0)


def around(hops, held, chunk_of, repeats, *, add):
    """Steps of rings: each device sends on the chunk that it received last, starting with its own."""
    current = dict(chunk_of)
    for _ in range(repeats):
        sent = [(target, current[source], held[source][current[source]].copy()) for source, target in hops]
        for target, chunk, buffer in sent:
            held[target][chunk] = held[target][chunk] + buffer if add else buffer
            current[target] = chunk
    return current


def ring(order, held, indices, repeats):
    """Reduce-scatter, then all-gather, around devices in order; on some indices of their buffers."""
    assert repeats == 2 * (len(order) - 1)
    hops = list(zip(order, order[1:] + order[:1], strict=True))
    chunks = dict(zip(order, np.array_split(indices, len(order)), strict=True))
    owned = around(hops, held, chunks, repeats // 2, add=True)
    around(hops, held, owned, repeats // 2, add=False)


def carry_out(scheme, plan, held):
    """Run the rounds of a plan on integer buffers, in the way that the scheme's name means."""
    if scheme in ("ps", "tree"):
        whole_buffers(plan, held)
    elif scheme == "ps-spread":
        owners(plan, held)
    elif len(plan) == 1:
        (order,) = cycles(messages(plan[0]))
        assert plan[0].share == pytest.approx(1 / len(order))
        ring(order, held, np.arange(len(held[order[0]])), plan[0].repeats)
    else:
        hierarchical(plan, held)


def cycles(pairs):
    """Rings that pairs of devices form, each in order from its first device."""
    hop, left, found = dict(pairs), [source for source, _ in pairs], []
    while left:
        row = [left[0]]
        while hop[row[-1]] != row[0]:
            row.append(hop[row[-1]])
        left = [device for device in left if device not in row]
        found.append(row)
    return found


def hierarchical(plan, held):
    """Reduce-scatter in the nodes, rings across them on what each local rank then owns, all-gather in the nodes."""
    inside, across, back = plan
    rows = cycles(messages(inside))
    inner, outer = len(rows[0]), len(rows)
    everything = np.arange(len(next(iter(held.values()))))
    chunks = np.array_split(everything, inner)
    assert (inside.share, inside.repeats) == (back.share, back.repeats) == (1 / inner, inner - 1)
    assert (across.share, across.repeats) == (1 / (inner * outer), 2 * (outer - 1))
    own = {device: chunks[i] for row in rows for i, device in enumerate(row)}
    owned = around(messages(inside), held, own, inside.repeats, add=True)
    for row in cycles(messages(across)):
        assert len({owned[device].tobytes() for device in row}) == 1  # peers own the same chunk
        ring(row, held, owned[row[0]], across.repeats)
    around(messages(back), held, owned, back.repeats, add=False)


@st.composite
def clusters(draw):
    """Replicas on nodes: a group of devices in any order, and the node of every device."""
    per_node, nodes = draw(st.sampled_from([(1, 2), (2, 1), (2, 2), (3, 2), (2, 3), (4, 2), (4, 4), (1, 5)]))
    devices = draw(st.permutations(range(per_node * nodes)))
    size = draw(st.one_of(st.just(len(devices)), st.integers(2, len(devices))))
    return list(devices[:size]), [device // per_node for device in range(len(devices))]


@pytest.mark.parametrize("scheme", SCHEMES)
@given(clusters(), st.integers(0, 2**32))
def test_every_replica_ends_with_the_sum(scheme, case, seed):
    group, nodes = case
    rng = np.random.default_rng(seed)
    held = {device: rng.integers(0, 1000, 48) for device in group}
    total = sum(held.values())
    carry_out(scheme, device_rounds(scheme, [group], nodes)[0], held)

    for device in group:
        np.testing.assert_array_equal(held[device], total)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(clusters())
def test_traffic_is_the_textbooks(scheme, case):
    """2 (p - 1) buffers in all, never less than 2 (p - 1) / p from the busiest: no scheme beats the bandwidth bound.

    Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009, Sec. 3.
    """
    group, nodes = case
    count = len(group)
    sent, received = dict.fromkeys(group, 0.0), dict.fromkeys(group, 0.0)
    for step in device_rounds(scheme, [group], nodes)[0]:
        for source, target in messages(step):
            assert source != target
            sent[source] += step.share * step.repeats
            received[target] += step.share * step.repeats
        carried = step.traffic  # links carry the messages, and ranks copy nothing beside them
        assert set(carried.sent) == set(carried.taken) == {step.share * step.repeats}
        assert carried.copied_s_per_byte == 0.0

    assert sum(sent.values()) == pytest.approx(2 * (count - 1))
    assert max(sent.values()) >= 2 * (count - 1) / count * (1 - 1e-12)
    assert max(received.values()) >= 2 * (count - 1) / count * (1 - 1e-12)
    if scheme in (*RINGS, "ps-spread"):  # spread evenly: the bound is met
        assert set(np.round(list(sent.values()), 9)) == {round(2 * (count - 1) / count, 9)}


@given(clusters())
def test_a_ring_has_2_p_minus_1_steps_of_a_pth(case):
    group, nodes = case
    (step,) = device_rounds("ring", [group], nodes)[0]

    assert (step.share, step.repeats) == (1 / len(group), 2 * (len(group) - 1))
    assert messages(step) == list(zip(group, group[1:] + group[:1], strict=True))


@pytest.mark.parametrize(("count", "rounds"), [(2, 2), (3, 4), (4, 4), (5, 6), (8, 6), (9, 8)])
def test_a_tree_has_2_log_p_rounds(count, rounds):
    assert len(device_rounds("tree", [range(count)], [0] * count)[0]) == rounds


def test_hierarchical_keeps_to_rings_of_nodes():
    """Two nodes of four: three steps inside, two across with each local rank, three inside."""
    inside, across, back = device_rounds("hierarchical", [range(8)], [0] * 4 + [1] * 4)[0]

    assert all(source // 4 == target // 4 for source, target in messages(inside))
    assert messages(inside) == messages(back)
    assert sorted(messages(across)) == sorted((i, (i + 4) % 8) for i in range(8))
    assert [inside.repeats, across.repeats, back.repeats] == [3, 2, 3]


@pytest.mark.parametrize(
    "nodes", [[0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 2, 3]], ids=["unequal nodes", "one node", "one device a node"]
)
def test_hierarchical_is_a_ring_where_nodes_do_not_repeat(nodes):
    (step,) = device_rounds("hierarchical", [range(4)], nodes)[0]

    assert messages(step) == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert (step.share, step.repeats) == (0.25, 6)


def test_groups_keep_one_pattern():
    """One group on equal nodes, one not: both use rings, so that they can run in step."""
    plans = device_rounds("hierarchical", [(0, 1, 4, 5), (2, 3, 6, 8)], [0, 0, 0, 0, 1, 1, 1, 1, 2])

    assert [[(step.share, step.repeats) for step in plan] for plan in plans] == [[(0.25, 6)]] * 2


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_single_replica_exchanges_nothing(scheme):
    assert device_rounds(scheme, [(0,), (1,)], [0, 0]) == [[], []]


def test_unknown_scheme():
    with pytest.raises(ConfigError, match=r"gradient_sync must be one of ring, .*got 'rng'"):
        device_rounds("rng", [(0, 1)], [0, 0])
