"""Collectives of a communication library: closed forms, the replay, and measurements that nothing was fitted to."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from plans import random_strategy

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.devices.collective_library import InSwitchSums
from hwprofiles.devices.latency import Latency
from hwprofiles.measured.measured_tables import measured_table
from planner.cost.all_reduce import all_reduce_s, choose_all_reduce, layer_choice
from planner.cost.cost_model import CostModel
from planner.cost.library_choice import library_families
from planner.cost.library_rounds import COLLECTIVES, library_collective, library_collective_s, library_rounds
from planner.layouts.configurations import Configuration, space_of
from planner.lowering.lower_strategy import lower
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.simulation.additive_cost import additive_s
from planner.simulation.program_replay import replay
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.topology.network_routes import first_alike, routes_of_cluster

SIZES = 2.0 ** np.arange(8, 31, 2)
MIB = 2**20
SYSTEMS = {"h100_sxm": "dgx-h100", "a100_sxm": "dgx-a100"}


def times_s(spec, collective, devices):
    return library_collective_s(routes_of_cluster(load_cluster(spec)), collective, tuple(range(devices)), SIZES)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("spec", ["dgx-h100:nodes=2", "p100-4x4", "dgx1-p100"])
def test_time_grows_with_size_and_is_no_shorter_than_the_links_allow(spec, collective):
    """Each of p devices of one node sends at least its part over links of known bandwidth."""
    network = routes_of_cluster(load_cluster(spec))
    for devices in (2, 3, 4, 8):
        if devices > network.device_count:
            continue
        seconds = times_s(spec, collective, devices)
        assert (np.diff(seconds) > 0).all()
        links = np.unique(network.routes(np.zeros(devices - 1, dtype=int), np.arange(1, devices))[1])
        fastest = (1 / network.seconds_per_byte[links]).sum() * devices
        assert (seconds > SIZES / devices / fastest).all()


def with_slow_link(cluster, begin):
    """The cluster with one slower link, of those whose names begin so."""
    slow = next(i for i, link in enumerate(cluster.links) if link.name.startswith(begin))
    links = [
        replace(each, bandwidth_bytes_per_s=each.bandwidth_bytes_per_s / 3) if i == slow else each
        for i, each in enumerate(cluster.links)
    ]
    return cluster.with_links(links)


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("spec", ["dgx-h100:nodes=6", "dgx-a100:nodes=5", "polaris:nodes=6"])
def test_like_groups_have_the_rounds_that_each_would_have_alone(spec, slow):
    """Random groups on a few machines, of which one may have a slow link: each beside its own rounds, to the bit."""
    cluster = load_cluster(spec)
    cluster = with_slow_link(cluster, "node2") if slow else cluster
    network, draws = routes_of_cluster(cluster), np.random.default_rng(0)
    size, shared = network.node_size, 0
    for count in (2, 4, 8):
        local = np.sort(draws.choice(size, min(count // 2, size), replace=False))
        nodes = [draws.choice(network.device_count // size, 2, replace=False) for _ in range(12)]
        groups = np.array([np.concatenate([first * size + local, other * size + local]) for first, other in nodes])
        firsts = np.array(first_alike(network, groups))
        shared += len(groups) - len(set(firsts.tolist()))
        schemes = [scheme for family in library_families(network, groups.ravel()) for scheme in family]
        for first, scheme in product(set(firsts.tolist()), schemes):
            alike = groups[firsts == first]
            for group, (step,) in zip(alike, library_rounds(network, scheme, alike), strict=True):
                (own,) = library_collective(network, scheme, "all-reduce", tuple(group.tolist()))
                assert step.traffic.latency_s == own.traffic.latency_s
                assert step.traffic.copied_s_per_byte == own.traffic.copied_s_per_byte
                for column in ("source", "target", "sent", "taken"):
                    np.testing.assert_array_equal(getattr(step.traffic, column), getattr(own.traffic, column))
    assert shared >= 12


def test_an_all_reduce_is_one_of_the_sums_by_hand():
    """Between two H100: two steps of half the buffer, by each protocol, and a half that is copied."""
    library = load_cluster("dgx-h100").library
    bandwidth = 385e9 * library.near_share
    by_hand = [
        each.call_s + 2 * each.hop_s + each.wire_ratio * (SIZES / bandwidth + SIZES / 2 / library.copy_bytes_per_s)
        for each in library.protocols
    ]
    np.testing.assert_allclose(times_s("dgx-h100", "all-reduce", 2), np.min(by_hand, axis=0), rtol=1e-12)


def test_switch_sums_send_each_byte_once():
    """Each device sends its buffer and receives the sums, and so often the part that it has asked for."""
    library = load_cluster("dgx-h100").library
    expected_s = library.in_switch.call_s + SIZES * (1 + 1 / 8) / (
        385e9 * library.near_share * library.in_switch.link_share
    )
    large = SIZES > 100 * MIB
    np.testing.assert_allclose(times_s("dgx-h100", "all-reduce", 8)[large], expected_s[large], rtol=1e-12)


def with_network_sums(spec, **changes):
    """Return the routes of a cluster whose network sums."""
    network = routes_of_cluster(load_cluster(spec))
    sums = InSwitchSums(call_s=3e-5, link_share=0.9)
    network.library = replace(network.library, in_network=sums, **changes)
    return network


def test_network_sums_cross_each_card_once():
    """Two devices in two nodes: the buffer once over the card each way, where a ring of two sends it once as well."""
    network = with_network_sums("dgx-h100:nodes=2")
    (step,) = library_collective(network, "library-network-sums", "all-reduce", (0, 8))
    (ring,) = library_collective(network, "library-ring-simple", "all-reduce", (0, 8))

    assert step.traffic.latency_s == 3e-5
    assert step.traffic.sent == pytest.approx(ring.traffic.sent, rel=1e-12)
    assert step.traffic.taken == pytest.approx(ring.traffic.taken / 0.9, rel=1e-12)


@pytest.mark.parametrize("nodes", [4, 16, 64])
def test_network_sums_tend_to_half_of_a_ring_over_the_cards(nodes):
    """Of p devices over n nodes, rings carry 2 (p - 1) / p of the buffer over the cards, sums 1 / share."""
    count = 4 * nodes
    devices, large = tuple(range(count)), np.array(8e9)
    with_sums, without = with_network_sums(f"abci-v100:nodes={nodes}"), load_cluster(f"abci-v100:nodes={nodes}")
    (step,) = library_collective(with_sums, "library-network-sums", "all-reduce", devices)

    node = with_sums.node
    between = node[step.source] != node[step.target]
    ratio = step.traffic.taken / (step.share * step.repeats)
    assert ratio[between] == pytest.approx(count / (count - 1) / 2 / 0.9, rel=1e-12)
    ring_s = library_collective_s(routes_of_cluster(without), "all-reduce", devices, large)
    assert library_collective_s(with_sums, "all-reduce", devices, large) < 0.7 * ring_s


def test_groups_inside_a_node_do_not_use_the_network():
    """Where a layer's groups lie in nodes, the sums of the network are those of the node's switch, or a ring."""
    network = with_network_sums("dgx-h100:nodes=2")
    inside = tuple(range(8))

    assert ("library-network-sums",) not in library_families(network, np.array(inside))
    (step,) = library_collective(network, "library-network-sums", "all-reduce", inside)
    (expected,) = library_collective(network, "library-switch-sums", "all-reduce", inside)
    assert step.traffic.latency_s == expected.traffic.latency_s
    np.testing.assert_array_equal(step.traffic.taken, expected.traffic.taken)


@pytest.mark.parametrize("spec", ["dgx-h100:nodes=2", "p100-4x4", "abci-v100:nodes=2"])
def test_cost_and_replay_agree(spec):
    """Without overlap and contention the replay is the additive cost, whatever the strategy."""
    cluster = load_cluster(spec).take(6)
    model = CostModel(load_model("lenet5", batch=24), cluster, "library")
    for seed in range(4):
        strategy = random_strategy(model.graph, 6, np.random.default_rng(seed))
        program = lower(model, spaces_of(model.graph, strategy, 6))
        replayed = replay(program, overlap=False, contention=False, iterations=2)
        np.testing.assert_allclose(replayed.ends_s[0], additive_s(model, strategy), rtol=1e-9)


@pytest.mark.parametrize(
    ("spec", "sums"), [("dgx-h100", "switch"), ("dgx-h100:nodes=2", "network"), ("abci-v100:nodes=2", "network")]
)
def test_sums_in_switches_cost_what_their_replay_takes(spec, sums):
    """As one activity exactly; message by message the same bytes, but for the call: links have no latency here."""
    cluster = load_cluster(spec)
    cluster = cluster.with_links([replace(link, latency=Latency.constant(0.0)) for link in cluster.links])
    count, call_s = len(cluster.devices), 1e-7
    both = InSwitchSums(call_s=call_s, link_share=0.8)
    cluster.library = replace(cluster.library, in_switch=both, in_network=both)
    model = CostModel(load_model("lenet5", batch=2 * count), cluster, "library")
    strategy = named_strategy("data", model.graph, count)
    spaces = spaces_of(model.graph, strategy, count)
    trained = [(layer, space) for layer, space in zip(model.graph.layers, spaces, strict=True) if layer.parameters]
    chosen = {layer_choice(model.network, "library", *pair, 4).scheme for pair in trained}
    assert chosen == {f"library-{sums}-sums"}

    free = {"overlap": False, "contention": False, "iterations": 2}
    activity, steps = (replay(lower(model, spaces, collectives=form), **free) for form in ("activity", "steps"))
    np.testing.assert_allclose(activity.ends_s[0], additive_s(model, strategy), rtol=1e-9)
    np.testing.assert_allclose(steps.ends_s[0], activity.ends_s[0] - len(trained) * call_s, rtol=1e-9)


SENT = {
    # cluster, scheme: bytes that leave all devices together, for each byte of the buffer, by hand
    ("dgx-h100", "switch-sums"): 8 * (1 + 1 / 8),  # each device its buffer, and the part that it had summed
    ("dgx-h100", "ring-simple"): 2 * 7,
    ("dgx-h100", "ring-ll"): 2 * 2 * 7,  # with a flag beside all data
    ("abci-v100:nodes=2", "tree-simple"): 2 * 7,  # up to the root and down again, over all edges but the root's
    ("abci-v100:nodes=2", "network-sums"): 2 * (2 * 3) + 2,  # chains of four, up and down, and over each card once
    ("dgx-h100:nodes=2", "network-sums"): 16 * (1 + 1 / 8) + 2,  # summed by the switches of the nodes, then over cards
    ("dgx1-p100", "chain-simple"): 2 * 2,  # three devices in a row, up and down
}


@pytest.mark.parametrize(("spec", "scheme"), SENT)
def test_bytes_moved_are_those_that_leave_devices(spec, scheme):
    """By the program, as one activity and message by message, and over the links that leave devices."""
    cluster = load_cluster(spec)
    sums = InSwitchSums(call_s=1e-6, link_share=0.8)
    devices = (0, 1, 4) if "chain" in scheme else tuple(range(len(cluster.devices)))
    cluster.library = replace(cluster.library, in_network=sums)
    cluster = cluster.only(devices)
    graph, count = load_model("lenet5", batch=2 * len(devices)), len(devices)
    model = CostModel(graph, cluster, f"library-{scheme}")
    spaces = spaces_of(graph, named_strategy("data", graph, count), count)
    expected = SENT[spec, scheme] * 4 * graph.parameter_count
    leaving = np.array([link.source < count for link in cluster.links])
    for form in ("activity", "steps"):
        program = lower(model, spaces, collectives=form)
        assert program.moved_bytes == pytest.approx(expected, rel=1e-12)
        assert replay(program).link_use().moved_bytes[leaving].sum() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("algorithm", ["ring-simple", "ring-ll", "tree-ll128", "network-sums"])
def test_links_are_loaded_alike_however_fast_others_are(algorithm):
    """The bytes and the time of messages inside nodes do not depend on the links between them, nor the reverse."""
    loads = {}
    for factor in (0.1, 1.0, 10.0):
        network = with_network_sums(f"dgx-a100:nodes=2,link.hdr.bandwidth_factor={factor}", copy_bytes_per_s=1e9)
        traffic = library_collective(network, f"library-{algorithm}", "all-reduce", tuple(range(16)))[0].traffic
        loads[factor] = network.link_loads(traffic.source, traffic.target, traffic.taken)
        assert (network.link_loads(traffic.source, traffic.target, traffic.sent) <= loads[factor] + 1e-12).all()
    np.testing.assert_allclose(loads[0.1], loads[1.0], rtol=1e-12)
    np.testing.assert_allclose(loads[10.0], loads[1.0], rtol=1e-12)


@pytest.mark.parametrize("spec", ["titanx-4:nodes=2", "fdr-32x3:nodes=2", "p100-4x4"])
def test_rings_take_no_less_than_all_their_bytes(spec):
    """Also over links that carry messages inside nodes and between them, as PCIe switches do."""
    cluster = load_cluster(spec)
    cluster.library = load_cluster("p100-4x4").library
    network, devices = routes_of_cluster(cluster), tuple(range(len(cluster.devices)))
    for protocol in cluster.library.protocols:
        for collective in ("all-reduce", "all-gather"):
            (step,) = library_collective(network, f"library-ring-{protocol.name}", collective, devices)
            assert (step.traffic.sent >= protocol.wire_ratio * step.share * step.repeats * (1 - 1e-12)).all()
            assert (step.traffic.taken >= step.traffic.sent).all()


def test_replicas_inside_nodes_are_summed_there():
    """Two groups of eight, each in a node of its own: both take what one takes, by the sums in its switch."""
    network = routes_of_cluster(load_cluster("dgx-h100:nodes=2"))
    layer = load_model("lenet5", batch=16).layers[-2]
    parts = Configuration({"sample": 8, "channel": 2}, tuple(node * 8 + i for i in range(8) for node in range(2)))
    space = space_of(layer, parts, 16)
    for size in SIZES.tolist():
        alone_s = library_collective_s(network, "all-reduce", tuple(range(8)), size)
        assert all_reduce_s(network, "library", space, 2 * size)[0] == pytest.approx(float(alone_s), rel=1e-12)
    assert choose_all_reduce(network, "library", space, 2e9, split=("channel",)).scheme == "library-switch-sums"


def test_plans_tell_what_the_library_chooses():
    """It is what the cluster declares: for each layer, or for the buckets, which are larger."""
    graph, cluster = load_model("alexnet", batch=64), load_cluster("p100-4x4")
    plans = {name: make_plan(graph, cluster, strategy="data", framework=name) for name in ("ideal", None)}
    chosen = {
        name: {choice.scheme.split("-", 1)[1] for choice in plan.gradient_syncs.values()}
        for name, plan in plans.items()
    }
    trained = {layer.name for layer in graph.layers if layer.parameter_count}

    assert plans[None].request.gradient_sync == plans["ideal"].request.gradient_sync == "library"
    assert plans[None].request.framework == "ddp"
    assert plans[None].gradient_syncs.keys() == plans["ideal"].gradient_syncs.keys() == trained
    assert len(chosen["ideal"]) > 1  # small layers by another protocol than large ones
    assert chosen[None] == {"ring-simple"}


def test_a_cluster_without_a_library_is_refused():
    with pytest.raises(ConfigError, match="gradient_sync must not be library for a cluster whose file has no section"):
        make_plan(load_model("lenet5", batch=8), load_cluster("titanx-4"), strategy="data", gradient_sync="library")
    with pytest.raises(ConfigError, match="gradient_sync must not be library with gradients compressed as float16"):
        make_plan(
            load_model("lenet5", batch=16),
            load_cluster("p100-4x4"),
            strategy="data",
            gradient_sync="library",
            compress_gradients="float16",
        )


def test_the_library_counts_in_the_digest():
    cluster = load_cluster("p100-4x4")
    assert cluster.take(4).library == cluster.library == cluster.with_links(cluster.links).library
    other = load_cluster("p100-4x4")
    other.library = replace(cluster.library, tree_share=0.5)
    assert other.digest != cluster.digest


def test_eight_devices_follow_from_two():
    """The shipped parameters come from two devices (sums in the switch excepted); eight were measured, too."""
    errors = []
    for row in measured_table("collectives").itertuples():
        summed_in_switch = row.system == "h100_sxm" and row.collective == "all-reduce"
        if row.system in SYSTEMS and row.devices == 8 and row.size_bytes > MIB and not summed_in_switch:
            network = routes_of_cluster(load_cluster(SYSTEMS[row.system]))
            predicted_s = library_collective_s(network, row.collective, tuple(range(8)), row.size_bytes)
            errors.append(float(np.log(predicted_s / (row.time_us * 1e-6))))
    assert len(errors) > 100
    assert np.median(np.abs(errors)) < 0.10
    assert np.quantile(np.abs(errors), 0.9) < 0.25


def calls_along_a_chain(ranks, chunks, calls):
    """Return when the last rank has each call: a link carries a chunk in a second, between ranks in the same call."""
    free, done = np.zeros(ranks), []  # when each rank has handed on all of its last call
    for _ in range(calls):
        begun, has = free.copy(), np.tile(free[0], chunks)
        for rank in range(1, ranks):
            has, end = has.copy(), begun[rank]
            for chunk in range(chunks):
                end = max(end, has[chunk]) + 1
                has[chunk] = end
            free[rank - 1] = end
        free[-1] = has[-1]
        done.append(has[-1])
    return done


@pytest.mark.parametrize("ranks", [2, 3, 6, 8])
def test_chunks_fill_the_chain_of_a_broadcast(ranks):
    """A call alone, and the time between calls in a row, as chunk after chunk goes down the chain."""
    network, devices = routes_of_cluster(load_cluster("dgx-a100")), tuple(range(ranks))
    sizes = np.array([2.0**29, 2.0**30])  # long enough for one protocol
    once, row = (library_collective_s(network, "broadcast", devices, sizes, in_a_row=flag) for flag in (False, True))
    byte_s = np.diff(row) / np.diff(sizes)
    two = library_collective_s(network, "broadcast", (0, 1), sizes, in_a_row=True)
    chunk = (library_collective_s(network, "broadcast", (0, 1, 2), sizes, in_a_row=True) - two)[0]
    hops = calls_along_a_chain(ranks, chunks=9, calls=8)

    assert hops[-1] - hops[-2] - 9 == pytest.approx((row[0] - two[0]) / chunk)
    assert hops[0] - (hops[-1] - hops[-2]) == pytest.approx((once - row)[0] / chunk, abs=0.6)  # latencies of steps
    assert chunk / byte_s == pytest.approx(22 * 2**19)


def test_broadcasts_in_a_row_wait_for_one_step_only():
    """Ranks of a chain take the next call before the last one has the data; long messages are bound by links alike."""
    network, sizes = routes_of_cluster(load_cluster("dgx-a100")), np.array([64.0, 2.0**34])
    rows = {
        count: library_collective_s(network, "broadcast", tuple(range(count)), sizes, in_a_row=True)
        for count in (2, 4, 8)
    }
    once = library_collective_s(network, "broadcast", tuple(range(8)), sizes)
    assert rows[2][0] == pytest.approx(rows[8][0], rel=1e-3)
    assert once[0] > rows[8][0]
    assert once[1] == pytest.approx(rows[8][1], rel=0.01)
    for collective in ("all-reduce", "all-gather"):
        same = [
            library_collective_s(network, collective, tuple(range(8)), sizes, in_a_row=flag) for flag in (False, True)
        ]
        assert np.array_equal(*same)


def test_sends_between_nodes_have_no_flags_beside_their_data():
    """An all-to-all of one device in each of two nodes takes the call of sends and a far step of the last protocol."""
    network = routes_of_cluster(load_cluster("dgx-h100:nodes=2"))
    simple = network.library.protocols[-1]
    small_s = library_collective_s(network, "all-to-all", (0, 8), np.array(1e-9))

    assert simple.wire_ratio == 1.0
    assert small_s == pytest.approx(network.library.send_call_s + simple.far_hop_s, rel=1e-9)
    assert library_collective_s(network, "all-to-all", (0, 1), np.array(1e-9)) < simple.call_s


def test_sends_that_go_with_their_command_take_longer():
    """Of eight devices of Polaris each sends to four of the other machine, 128 or 256 of their 1,024 or 2,048 bytes."""
    network = routes_of_cluster(load_cluster("polaris:nodes=2"))
    seconds = library_collective_s(network, "all-to-all", tuple(range(8)), np.array([1024.0, 1536.0, 1537.0, 2048.0]))

    assert seconds[1] - seconds[2] == pytest.approx(4 * network.library.inline_s, rel=1e-3)
    assert seconds[0] < seconds[1]
    assert seconds[2] < seconds[3]


@pytest.mark.parametrize(
    ("cluster", "settings"),
    [
        ("polaris:nodes=2", ("setup3", "setup4")),
        ("polaris:nodes=2,link.slingshot.transport=slingshot-rendezvous", ("setup5",)),
    ],
)
def test_short_sends_over_slingshot_take_what_was_measured_on_two_machines(cluster, settings):
    """All-to-alls of 32 B to 1 MiB; numbers of the transport are fitted to those on eight machines."""
    rows = measured_table("collectives").query(
        "system == 'polaris' and collective == 'all-to-all' and nodes == 2 and size_bytes <= 2**20"
    )
    rows = rows[rows.setting.isin(settings)]
    network = routes_of_cluster(load_cluster(cluster))
    seconds = library_collective_s(network, "all-to-all", tuple(range(8)), rows.size_bytes.to_numpy(float))

    assert len(rows) == 32 * len(settings)
    assert np.median(np.abs(np.log(seconds * 1e6 / rows.time_us))) < 0.15


def test_long_sends_inside_a_node_have_no_flags_beside_their_data():
    """An all-to-all of two devices: up to 16 KiB by the first protocol, above by the last with a call of its own."""
    network = routes_of_cluster(load_cluster("dgx-h100"))
    library, link = network.library, 385e9 * network.library.near_share
    first, last = library.protocols[0], library.protocols[-1]
    sizes = np.array([2.0**15, 2.0**15 + 2, 2.0**29])
    seconds = library_collective_s(network, "all-to-all", (0, 1), sizes)
    byte_s = 1 / 2 / link + 1 / 2 / library.copy_bytes_per_s

    assert seconds[0] == pytest.approx(first.call_s + first.hop_s + first.wire_ratio * sizes[0] * byte_s)
    assert seconds[1:] == pytest.approx(library.send_call_s + last.hop_s + last.wire_ratio * sizes[1:] * byte_s)
    for spec, count in (("dgx-h100", 8), ("p100-4x4", 4), ("dgx1-p100", 8)):
        fine = np.linspace(2.0**12, 2.0**19, 200)
        grown = library_collective_s(routes_of_cluster(load_cluster(spec)), "all-to-all", tuple(range(count)), fine)
        assert (np.diff(grown) > 0).all()


def test_steps_of_trees_and_protocols_between_nodes():
    """One device in each of two nodes: trees, rings and a protocol that stays inside nodes, by hand."""
    network = routes_of_cluster(load_cluster("dgx-h100:nodes=2"))
    flags = network.library.protocols[0]

    def seconds(**changes):
        only = replace(network.library, protocols=(replace(flags, **changes),), tree_share=changes.pop("share", None))
        other = routes_of_cluster(load_cluster("dgx-h100:nodes=2"))
        other.library = only
        return library_collective_s(other, "all-reduce", (0, 8), SIZES)

    byte_s = 1 / network.library.copy_bytes_per_s / 2 * flags.wire_ratio
    ring_s = flags.call_s + 2 * flags.far_hop_s + SIZES * (flags.far_wire_ratio / 48.5e9 + byte_s)
    np.testing.assert_allclose(seconds(), ring_s, rtol=1e-12)
    np.testing.assert_allclose(seconds(far_wire_ratio=flags.wire_ratio), ring_s - SIZES * 2 / 48.5e9, rtol=1e-9)

    tree = routes_of_cluster(load_cluster("dgx-h100:nodes=2"))
    tree.library = replace(tree.library, protocols=(flags,), tree_share=0.5)
    (short,), (long,) = (
        library_collective(tree, f"library-tree-ll{piece}", "all-reduce", (0, 8)) for piece in ("-short", "")
    )
    for step in (short, long):  # the card carries the buffer once each way
        assert (step.traffic.taken / 48.5e9).max() == pytest.approx(flags.wire_ratio / 0.5 / 48.5e9, rel=1e-12)
    steps_s = flags.call_s + 2 * flags.tree_far_hop_s
    assert short.traffic.latency_s == pytest.approx(steps_s, rel=1e-12)
    assert long.traffic.copied_s_per_byte == 0
    # both steps wait for the buffer, up to 64 KiB of it
    waited_s = short.traffic.copied_s_per_byte * 2**16
    assert long.traffic.latency_s == pytest.approx(steps_s + waited_s, rel=1e-12)

    tree.library = replace(
        network.library,
        protocols=tuple(replace(each, near_only=each.name == "ll128") for each in network.library.protocols),
    )
    assert not any("ll128" in family[-1] for family in library_families(tree, np.array([0, 8])))
    assert any("ll128" in family[-1] for family in library_families(tree, np.array([0, 1])))
