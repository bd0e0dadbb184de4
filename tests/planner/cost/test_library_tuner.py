"""What a library takes between nodes: its tuner's rule by hand, slow choices included, over several transports."""

from dataclasses import replace

import numpy as np
import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.catalogue.transports import load_transport, transport_names
from planner.cost.library_choice import library_families
from planner.cost.library_rounds import _scheme_s, library_collective, library_collective_s
from planner.cost.library_tuner import Spread, tuner_s
from planner.topology.network_routes import routes_of_cluster

SIZES = 2.0 ** np.arange(6, 31)
TWO = "dgx-h100:nodes=2"
SPREAD = Spread(np.array(2.0), np.array(8.0), np.array(27e9), np.array(22e9))


def times_s(spec, collective="all-reduce", devices=16):
    return library_collective_s(routes_of_cluster(load_cluster(spec)), collective, tuple(range(devices)), SIZES)


@pytest.mark.parametrize(
    ("algorithm", "protocol", "size", "declared_us", "amd", "by_hand_us"),
    [
        # two nodes of four: 12 steps inside, 2 between; half of the bandwidth
        ("ring", "ll", 1e6, 0, False, 6.6 + 12 * 1.0 + 2 * 2.7 + 1e6 / 13.5e3),
        ("ring", "simple", 1e9, 0, False, 8.4 + 1.4 * (12 * 3.4 + 2 * 14) + 1e9 / 27e3),
        ("tree", "simple", 2**30, 0, False, 8.4 + 2 * (3 * 4 + 14) + 2**30 / 0.92 / 22e3),
        ("tree", "ll", 64, 75, False, 6.8 + 2 * (3 * 0.6 + 80) + 64 / (22e3 * 0.92 / 3.8)),
        ("tree", "simple", 2**20, 75, False, 8.4 + 2 * (3 * 4 + 14 + 150) + 2**20 / (0.92 * 0.5 * 22e3)),
        # processors of AMD post a message in twice the time: 2 us, 6 by simple
        ("ring", "ll", 1e6, 0, True, 6.6 + 12 * 2.0 + 2 * 2.7 + 1e6 / (22.5e3 * 8 / 14)),
        ("ring", "simple", 1e9, 0, True, 8.4 + 1.4 * (12 * 6 + 2 * 14) + 1e9 / 27e3),
    ],
)
def test_the_tuner_prices_as_its_source_does(algorithm, protocol, size, declared_us, amd, by_hand_us):
    library = replace(routes_of_cluster(load_cluster(TWO)).library, declared_s=declared_us * 1e-6, amd_hosts=amd)
    found = tuner_s(library, algorithm, protocol, "all-reduce", SPREAD, np.array(float(size)))
    assert found * 1e6 == pytest.approx(by_hand_us, rel=1e-9)


@pytest.mark.parametrize(
    ("release", "far_steps", "share"), [("2.18.3", 4, 0.25), ("2.20", 4, 0.25), ("2.21.5", 2, 0.5)]
)
def test_releases_before_2_21_expect_less_of_rings_of_the_first_protocol(release, far_steps, share):
    """They count two steps between nodes more; the tuner of 2.18.3 by hand."""
    library = routes_of_cluster(load_cluster(f"{TWO},library.nccl.release={release}")).library
    found = tuner_s(library, "ring", "ll", "all-reduce", SPREAD, np.array(1e6))
    by_hand_us = 6.6 + (14 - far_steps) * 1.0 + far_steps * 2.7 + 1e6 / (share * 27e3)
    assert found * 1e6 == pytest.approx(by_hand_us, rel=1e-9)


def test_a_release_is_of_the_library_of_the_cluster():
    with pytest.raises(ConfigError, match=r"library.nccl.release must be numbers with points .*, got 'new'"):
        load_cluster(f"{TWO},library.nccl.release=new")
    with pytest.raises(ConfigError, match=r"must name a library of the cluster \(nccl\), got 'rccl'"):
        load_cluster(f"{TWO},library.rccl.release=2.18")
    with pytest.raises(ConfigError, match="it has none"):
        load_cluster("k80-16:library.nccl.release=2.18")


@pytest.mark.parametrize("nodes", [2, 16])
def test_steps_beyond_the_slots_of_a_ring_find_no_receive(nodes):
    """All-gathers of a few bytes over nodes of four, by hand: seven steps on two nodes, 63 on 16."""
    steps = 4 * nodes - 1
    short, late = load_transport("slingshot").of("ll"), load_transport("slingshot-rendezvous").of("ll")
    network = routes_of_cluster(load_cluster(f"polaris:nodes={nodes}"))
    (ring,) = library_collective(network, "library-ring-ll-short", "all-gather", tuple(range(4 * nodes)))
    far_us = min(steps, 8) * short.far_hop_us + max(steps - 8, 0) * late.far_hop_us
    by_hand_us = 10.1 + steps * 3 / 4 * short.step_us + far_us / 4
    assert ring.traffic.latency_s * 1e6 == pytest.approx(by_hand_us, rel=1e-9)


@pytest.mark.parametrize("transport", transport_names())
def test_what_is_chosen_is_one_of_the_families_but_not_always_the_fastest(transport):
    spec = f"{TWO},link.ndr.transport={transport}"
    network, devices = routes_of_cluster(load_cluster(spec)), tuple(range(16))
    families, rows = library_families(network, np.array(devices)), []
    for family in families:
        pieces = [_scheme_s(network, scheme, "all-reduce", devices, SIZES) for scheme in family]
        own_s = np.min(pieces[:2], axis=0)
        rows.append(np.maximum(own_s, pieces[2]) if len(pieces) > 2 else own_s)
    possible = np.array([row for row, family in zip(rows, families, strict=True) if "sums" not in family[0]])
    chosen = times_s(spec)
    assert (np.abs(possible / chosen - 1).min(axis=0) < 1e-9).all()
    slower = chosen / possible.min(axis=0)
    assert slower.max() > 1.2


def test_long_messages_keep_the_channel_and_short_ones_a_share_of_that():
    """The two pieces meet where a message of each of two channels a ring has 64 KiB, the links' where these take as
    long."""
    network, devices = routes_of_cluster(load_cluster(f"{TWO},link.ndr.transport=slingshot")), tuple(range(16))
    short, long, bulk = (
        library_collective(network, f"library-ring-simple{piece}", "all-gather", devices)[0]
        for piece in ("-short", "-long", "")
    )
    simple = load_transport("slingshot").of("simple")
    channels = 2 * len(bulk.source) // 16
    corner = simple.message_kib * 1024 * 16 * channels
    kept_s = 15 * simple.message_us * 1e-6

    def seconds(step, size):
        loads = network.link_loads(step.traffic.source, step.traffic.target, step.traffic.taken)
        links_s = (loads * network.seconds_per_byte).max()
        return step.traffic.latency_s + size * (step.traffic.copied_s_per_byte + links_s)

    assert seconds(short, corner) == pytest.approx(seconds(long, corner), rel=1e-9)
    links = network.link_loads(bulk.traffic.source, bulk.traffic.target, bulk.traffic.taken) * network.seconds_per_byte
    equal = kept_s / (links.max() + bulk.traffic.copied_s_per_byte)
    assert seconds(long, equal) == pytest.approx(seconds(bulk, equal), rel=1e-9)
    assert seconds(long, equal) - bulk.traffic.latency_s == pytest.approx(kept_s, rel=1e-9)


def test_no_rank_sends_over_sockets_faster_than_its_thread():
    """Sixteen ranks in two nodes: of an all-to-all each sends half of its buffer to the other node."""
    bytes_per_s = load_transport("sockets").rank_gbyte_per_s * 1e9
    seconds = times_s(f"{TWO},link.ndr.transport=sockets", "all-to-all")
    assert (seconds > SIZES / 2 / bytes_per_s).all()
    assert seconds[-1] == pytest.approx(SIZES[-1] / 2 / bytes_per_s, rel=0.01)


def test_short_sums_take_the_latency_that_the_plugin_declares():
    """A tree over two nodes goes up and down once: twice 75 us over EFA."""
    over = {name: times_s(f"{TWO},link.ndr.transport={name}")[0] for name in ("infiniband", "efa")}
    assert over["efa"] - over["infiniband"] == pytest.approx(2 * 75e-6, rel=1e-6)


def test_a_transport_is_of_links_between_machines():
    with pytest.raises(ConfigError, match=r"link_classes.nvlink4.transport must be of links between machines \(ndr\)"):
        load_cluster(f"{TWO},link.nvlink4.transport=efa")
    with pytest.raises(ConfigError, match=r"transport must be one of efa, .*, got 'effa'"):
        load_cluster(f"{TWO},link.ndr.transport=effa")
    with pytest.raises(ConfigError, match="must name a class of links"):
        load_cluster(f"{TWO},link.hdr.transport=efa")


@pytest.mark.parametrize("name", transport_names())
def test_transports_have_sources_and_steps_of_all_protocols(name):
    transport = load_transport(name)
    assert transport.name == name
    assert transport.sources
    assert list(transport.protocols) == ["ll", "ll128", "simple"]
