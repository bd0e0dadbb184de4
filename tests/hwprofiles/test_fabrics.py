"""Networks between machines by name: hops and bandwidths by closed forms, and equal routes by an independent search."""

from collections import Counter
from importlib.resources import files

import networkx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import describe_cluster, load_cluster
from hwprofiles.devices.routes import Arc, Router
from planner.models.registry import load_model
from planner.plan.make_plan import simulated_plan

CARD = 48.5e9


def switches_between(cluster, a, b):
    """Switches of the fabric on a route: links between machines, less one."""
    return sum(cluster.links[i].link_class == "ndr" for i in cluster.route(a, b)) - 1


def up_bytes_per_s(cluster, below, above):
    """Bandwidth from switches whose names hold one word to those whose names hold another, by switch below."""
    rates = Counter()
    for name, rate in zip(cluster.links.names, cluster.bandwidth.tolist(), strict=True):
        source, target = name.split(" -> ")
        if below in source.rsplit("/", 1)[-1] and above in target.rsplit("/", 1)[-1]:
            rates[source] += rate
    return set(np.round(np.array([*rates.values()]) / CARD, 9))


@pytest.mark.parametrize("routing", ["adaptive", "hashed"])
@pytest.mark.parametrize("share", [1, 2, 4])
def test_trees_carry_the_cards_below_a_leaf_by_the_share(routing, share):
    """Machines of eight cards: a leaf of four has 32 of them, a rail's leaf of four machines one each."""
    words = f"oversubscription={share},routing={routing}"
    tree = load_cluster(f"dgx-h100:nodes=12,fabric=fat-tree,leaf_nodes=4,{words}")
    assert up_bytes_per_s(tree, "leaf", "spine") == {32 / share}
    assert (switches_between(tree, 0, 24), switches_between(tree, 0, 32)) == (1, 3)
    rails = load_cluster(f"dgx-h100:nodes=12,leaf_nodes=4,{words}")
    assert up_bytes_per_s(rails, "leaf", "spine") == {4 / share}
    assert [switches_between(rails, 0, other) for other in (24, 25, 32)] == [1, 3, 3]
    three = load_cluster(f"dgx-h100:nodes=32,fabric=fat-tree-3,leaf_nodes=4,pod_leaves=2,{words}")
    assert up_bytes_per_s(three, "leaf", "aggregation") == {32 / share}
    assert sum(up_bytes_per_s(three, "aggregation", "core")) == (64 / share if routing == "adaptive" else 2)
    assert [switches_between(three, 0, other) for other in (24, 32, 64)] == [1, 3, 5]


def test_groups_of_a_dragonfly_are_one_cable_apart():
    """Six groups of three switches of two machines: at most one switch beside the two ends of the cable in a group."""
    cluster = load_cluster("dgx-h100:nodes=35,fabric=dragonfly,leaf_nodes=2,group_leaves=3")
    names = [switch for switch in cluster.vertices if switch.endswith("leaf")]
    assert len(names) == 18
    for link, name in zip(cluster.links, cluster.links.names, strict=True):
        source, target = (end.split("/") for end in name.split(" -> "))
        if source[-1] == target[-1] == "leaf":
            cards = 2 * 16 / 3 if source[0] == target[0] else 16 * 3 / 5
            assert link.bandwidth_bytes_per_s == pytest.approx(cards * CARD)
    hops = {switches_between(cluster, 8 * a, 8 * b) for a in range(35) for b in range(35) if a != b}
    assert hops == {1, 2, 3, 4}
    assert max(switches_between(cluster, 0, 8 * other) for other in (1, 2, 5)) == 2


@pytest.mark.parametrize(("words", "sizes"), [("", (3, 2, 4)), ("x=6,y=4,", (6, 4, 1)), ("x=2,y=1,", (2, 1, 12))])
def test_ways_in_a_torus_are_the_shortest_around_each_axis(words, sizes):
    cluster = load_cluster(f"polaris:nodes=24,{words}fabric=torus")
    place = np.stack(np.unravel_index(np.arange(24), sizes, order="F"), axis=1)
    for a, b in ((0, 23), (3, 17), (11, 12), (5, 6), (0, 12)):
        apart = np.abs(place[a] - place[b])
        route = [cluster.links[i].link_class for i in cluster.route(4 * a, 4 * b)]
        assert route.count("slingshot") - 2 == np.minimum(apart, np.array(sizes) - apart).sum()


@settings(max_examples=30)
@given(
    st.integers(2, 6).flatmap(
        lambda n: st.tuples(
            st.just(n), st.sets(st.tuples(st.integers(0, n), st.integers(0, n)), min_size=1, max_size=14)
        )
    ),
    st.integers(1, 6),
)
def test_equal_routes_are_all_the_shortest(drawn, most):
    """Two devices at the first and the last of some switches; networkx counts the shortest ways."""
    switches, pairs = drawn
    edges = [(0, 2), (1, 2 + switches)] + [(2 + a, 2 + b) for a, b in pairs if a != b]
    ends = list(dict.fromkeys(end for a, b in edges for end in ((a, b), (b, a))))
    arcs = [Arc(a, b, link, 5) for link, (a, b) in enumerate(ends)]
    joined = networkx.Graph(edges)
    router = Router(2, 3 + switches, arcs)
    if not networkx.has_path(joined, 0, 1):
        return
    every = {tuple(path) for path in networkx.all_shortest_paths(joined, 0, 1)}
    for limit in (most, 10_000):
        found = [(0, *(ends[link][1] for link in route)) for route in router.equal_routes(0, 1, limit)]
        assert len(found) == len(set(found)) == min(limit, len(every))
        assert set(found) <= every


def test_a_hash_spreads_pairs_evenly_over_ways():
    """Of 32 x 32 pairs of devices below two leaves each of 32 spines gets about 32, as chance would have it."""
    cluster = load_cluster("dgx-h100:nodes=8,fabric=fat-tree,routing=hashed")
    source, target = (each.ravel() for each in np.meshgrid(np.arange(32), np.arange(32, 64)))
    _, links = cluster.routes(source, target)
    taken = Counter(
        name for name in map(cluster.links.names.__getitem__, links.tolist()) if name.startswith("rack0/leaf")
    )
    counts = np.array([*taken.values()])
    assert (len(counts), counts.sum()) == (32, 1024)
    assert 10 < ((counts - 32) ** 2 / 32).sum() < 60  # chi-square of 31 degrees: 0.1 to 99.9 % lie in 11 to 61


def test_flows_that_meet_are_slower_than_those_that_are_spread():
    """The same plan, by the same links but the ways between leaves: hashed ways collide, adaptive ones do not."""
    graph = load_model("vgg16", batch=64)
    times = {
        routing: simulated_plan(
            graph, load_cluster(f"dgx-h100:nodes=8,fabric=fat-tree,leaf_nodes=1,routing={routing}"), strategy="data"
        ).replayed.iteration_s
        for routing in ("adaptive", "hashed")
    }
    assert times["hashed"] > 1.02 * times["adaptive"]


def test_a_fabric_says_what_can_be_chosen():
    names = [each.name for each in describe_cluster("dgx-h100:fabric=fat-tree-3").parameters]
    assert names == ["nodes", "fabric", "leaf_nodes", "pod_leaves", "oversubscription", "routing"]
    limits = [(each.minimum, each.maximum) for each in describe_cluster("dgx-h100").parameters if each.choices]
    assert limits == [(None, None)] * 2  # JSON has no number that is none
    assert load_cluster("dgx-h100:nodes=9,fabric=torus,x=3").name == "dgx-h100:nodes=9,fabric=torus,x=3"


def test_a_chosen_size_of_a_torus_leaves_the_others_what_divides_the_rest():
    """Of twelve machines in a line of four along y there are three along x, as no cube is nearer."""
    chosen, both = (load_cluster(f"dgx-h100:nodes=12,fabric=torus,{sizes}") for sizes in ("y=4", "x=3,y=4"))
    assert [*chosen.links.names] == [*both.links.names]


def test_the_routing_of_a_file_holds_where_its_fabric_offers_none(tmp_path):
    text = (files("hwprofiles") / "clusters" / "ndv5.yaml").read_text()
    (tmp_path / "own.yaml").write_text(text.replace("version: 1\n", "version: 1\nrouting: hashed\n"))
    assert load_cluster(f"{tmp_path}/own.yaml:nodes=8,fabric=torus").hashed
    assert not load_cluster("ndv5:nodes=8,fabric=torus").hashed


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("dgx-h100:nodes=20,fabric=torus,x=3,y=2", "sizes of a torus must divide its 20 nodes, got x=3 and y=2"),
        ("dgx-h100:nodes=8,fabric=torus,x=3", "sizes of a torus must divide its 8 nodes, got x=3$"),
        ("dgx-h100:fabric=fattree", "fabric must be one of .*, got 'fattree'; did you mean 'fat-tree'"),
        ("dgx-h100:fabric=torus,routing=hashed", "parameter must be one of nodes, fabric, x, y, got 'routing'"),
        ("dgx-h100:fabric=fat-tree,oversubscription=0", "oversubscription must be a number in 0.05 .. 1000"),
        ("dgx-h100:routing=random", "routing must be one of adaptive, hashed, got 'random'"),
    ],
)
def test_parameters_that_do_not_fit(spec, message):
    with pytest.raises(ConfigError, match=message.replace("*", r"\*").replace(r".\*", ".*")):
        load_cluster(spec)
