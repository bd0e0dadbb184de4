"""Cluster files: what they can say, and what is said about broken ones."""

import copy

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from groundwork.errors import ConfigError, UnreachableError
from hwprofiles.catalogue.cluster_build import build_cluster
from hwprofiles.catalogue.cluster_catalogue import CLUSTERS, cluster_names, load_cluster
from hwprofiles.catalogue.cluster_reader import parse_cluster
from hwprofiles.devices.device import CopyEngines

FLAT = {
    "version": 1,
    "name": "pair",
    "link_classes": {"pcie": {"bandwidth_gbit_per_s": 64, "latency_us": 2}},
    "levels": [
        {
            "name": "machine",
            "devices": [
                {"name": "old", "profile": "k80", "memory_gib": 12},
                {"name": "new", "profile": "v100-16gb", "memory_gib": 16, "node": 1},
            ],
            "switches": [{"name": "switch"}],
            "links": [{"between": ["*", "switch"], "class": "pcie"}],
        }
    ],
}


def load(tmp_path, tree, params=""):
    path = tmp_path / "mine.yaml"
    path.write_text(tree if isinstance(tree, str) else yaml.safe_dump(tree))
    return load_cluster(f"{path}{params}")


def changed(path, value, tree=FLAT):
    """The tree with the value at a dotted path replaced; None removes it."""
    tree = copy.deepcopy(tree)
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    at = tree
    for step in steps:
        at = at[step]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return tree


def test_flat_file_with_different_devices(tmp_path):
    graph = load(tmp_path, FLAT)

    assert [(d.name, d.node, d.profile, d.memory_bytes) for d in graph.devices] == [
        ("old", 0, "k80", 12 * 2**30),
        ("new", 1, "v100-16gb", 16 * 2**30),
    ]
    assert graph.vertices == ("old", "new", "switch")
    assert graph.bandwidth.tolist() == [8e9] * 4  # 64 Gbit/s
    assert graph.latency_s(0, 1, 100.0) == pytest.approx(4e-6)
    assert graph.node_count == 2


def test_half_duplex_is_one_link_for_both_ways(tmp_path):
    graph = load(tmp_path, changed("link_classes.pcie.duplex", "half"))
    assert [link.both_ways for link in graph.links] == [True, True]
    assert graph.route(0, 1) == graph.route(1, 0)[::-1]


def test_exclusive_sharing_and_parallel_cables(tmp_path):
    tree = changed("levels.0.links.0.count", 3, changed("link_classes.pcie.sharing", "exclusive"))
    graph = load(tmp_path, tree)
    assert all(link.exclusive for link in graph.links)
    assert graph.bandwidth.tolist() == [24e9] * 4


def test_copy_engines_and_hosts(tmp_path):
    """Numbers of engines may be parameters; hosts keep their names in every copy of a level."""
    tree = {
        "version": 1,
        "name": "engines",
        "parameters": {"copies": {"default": 1, "minimum": 1, "maximum": 8}},
        "link_classes": {"pcie": {"bandwidth_gbyte_per_s": 10, "latency_us": 1}},
        "levels": [
            {
                "name": "node",
                "devices": [
                    {
                        "name": "gpu",
                        "profile": "p100",
                        "memory_gib": 16,
                        "copy_engines": {"total": "copies", "peer": 2},
                        "message_overhead": {"message_us": 20, "byte_ns": 0.25, "add_byte_ns": "copies"},
                    },
                    {"name": "old", "profile": "k80", "memory_gib": 12},
                ],
                "switches": [{"name": "plx"}, {"name": "root", "is_host": True}],
                "links": [{"between": ["*", "plx"], "class": "pcie"}],
            },
            {
                "name": "all",
                "count": 2,
                "switches": [{"name": "net"}],
                "links": [{"between": ["node/plx", "net"], "class": "pcie"}],
            },
        ],
    }
    graph = load(tmp_path, tree, ":copies=3")
    assert [device.copy_engines for device in graph.devices] == [CopyEngines(total=3, peer=2), CopyEngines()] * 2
    overhead = graph.devices[0].message_overhead
    assert (overhead.message_s, overhead.byte_s, overhead.add_byte_s) == pytest.approx((20e-6, 0.25e-9, 3e-9))
    assert not graph.devices[1].message_overhead
    assert graph.hosts == {"node0/root": 0, "node1/root": 1}


def test_latency_tables_take_kbyte_and_kib(tmp_path):
    rows = [{"size_kbyte": 1, "latency_us": 1}, {"size_kib": 2, "latency_us": 3}]
    tree = changed("link_classes.pcie.latency_us", None, changed("link_classes.pcie.latency_table", rows))
    latency = load(tmp_path, tree).links[0].latency
    assert latency.sizes_bytes == (1000.0, 2048.0)
    assert latency.seconds == pytest.approx((1e-6, 3e-6))


NESTED = """
version: 1
name: nested
parameters:
  nodes: {default: 5, minimum: 1, maximum: 9}
  rate: {default: 2.5, minimum: 1, maximum: 4}
link_classes: {wire: {bandwidth_gbyte_per_s: rate, latency_us: 1}}
levels:
  - name: card
    devices: [{name: gpu, count: 2, profile: k80, memory_gib: 1}]
    switches: [{name: plx}]
    links: [{between: ["gpu*", plx], class: wire}]
  - {name: node, is_node: true, count: 2, links: [{between: [card/plx, card/plx], class: wire}]}
  - name: rack
    count: nodes
    at_most: 2
    switches: [{name: leaf}]
    links: [{between: ["node/card0/plx", leaf], class: wire}]
  - name: hall
    switches: [{name: spine}]
    links: [{between: ["rack?/leaf", spine], class: wire}]
"""


def test_levels_nest_and_racks_fill_in_order(tmp_path):
    """Five nodes in racks of two: two full racks and a partial one."""
    graph = load(tmp_path, NESTED, ":rate=4")

    assert len(graph.devices) == 20
    assert graph.node_count == 5
    assert graph.devices[-1].name == "rack2/node0/card1/gpu1"
    assert [graph.links[i].name for i in graph.route(2, 19)] == [
        "rack0/node0/card1/gpu0 -> rack0/node0/card1/plx",
        "rack0/node0/card1/plx -> rack0/node0/card0/plx",
        "rack0/node0/card0/plx -> rack0/leaf",
        "rack0/leaf -> spine",
        "spine -> rack2/leaf",
        "rack2/leaf -> rack2/node0/card0/plx",
        "rack2/node0/card0/plx -> rack2/node0/card1/plx",
        "rack2/node0/card1/plx -> rack2/node0/card1/gpu1",
    ]
    assert set(graph.bandwidth) == {4e9}
    assert load(tmp_path, NESTED, ":nodes=1").node_count == 1


@pytest.mark.parametrize("name", cluster_names())
def test_catalogue_files_are_named_after_their_cluster(name):
    assert yaml.safe_load((CLUSTERS / f"{name}.yaml").read_text())["name"] == name


PROTOCOL = {"name": "ll", "call_us": 5.1, "hop_us": 1.0, "far_hop_us": 2.7, "wire_ratio": 2.0}
LIBRARY = {"name": "nccl", "copy_gbyte_per_s": 800.0, "protocols": [PROTOCOL]}


@st.composite
def flat_files(draw):
    """Up to 5 devices, each on one or two of up to 3 switches that form a chain or stand apart."""
    switches, devices = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    wires = {
        f"wire{i}": {
            "bandwidth_gbyte_per_s": draw(st.floats(0.01, 1000)),
            "latency_us": draw(st.floats(0, 1000)),
            "duplex": draw(st.sampled_from(["full", "half"])),
        }
        for i in range(2)
    }
    joins = draw(st.booleans())
    pairs = [(f"switch{i}", f"switch{i + 1}") for i in range(switches - 1) if joins]
    for i in range(devices):
        chosen = draw(st.sets(st.integers(0, switches - 1), min_size=1, max_size=2))
        pairs += [(f"gpu{i}", f"switch{j}") for j in sorted(chosen)]
    level = {
        "name": "machine",
        "devices": [{"name": "gpu", "count": devices, "profile": "p100", "memory_gib": draw(st.floats(0.1, 100))}],
        "switches": [{"name": "switch", "count": switches}],
        "links": [{"between": list(pair), "class": draw(st.sampled_from(["wire0", "wire1"]))} for pair in pairs],
    }
    return {"version": 1, "name": "random", "link_classes": wires, "levels": [level]}


@settings(max_examples=35, deadline=None)
@given(flat_files())
def test_random_flat_files_survive_yaml_and_join_all_devices(tree):
    """Writing and reading YAML changes nothing; a file either joins all devices or is refused."""
    again = yaml.safe_load(yaml.safe_dump(tree))
    try:
        graph = build_cluster(parse_cluster(tree, {}, "tree"), "random")
    except UnreachableError:
        with pytest.raises(UnreachableError):
            build_cluster(parse_cluster(again, {}, "tree"), "random")
        return
    assert build_cluster(parse_cluster(again, {}, "tree"), "random").digest == graph.digest
    everyone = range(len(graph.devices))
    assert all(graph.route(a, b) for a in everyone for b in everyone if a != b)


CLASS, LEVEL = "link_classes.pcie", "levels.0"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("levels.0.devices.0.copy_engines", {"peer": 0}, "peer: must be greater than or equal to 1, got 0"),
        ("levels.0.devices.0.copy_engines", {"both": 1}, "levels.0.devices.0.copy_engines.both: unknown key"),
        ("levels.0.devices.0.message_overhead", {"byte_ns": -1}, "byte_ns: must be greater than or equal to 0, got -1"),
        (
            "levels.0.devices.0.message_overhead",
            {"bit_ns": 1},
            "levels.0.devices.0.message_overhead.bit_ns: unknown key",
        ),
        (
            "library",
            {"name": "nccl", "copy_gbyte_per_s": 800, "protocols": []},
            "library.protocols: must have at least 1",
        ),
        (
            "library",
            {**LIBRARY, "copy_gbyte_per_s": 0},
            "library.copy_gbyte_per_s: must be greater than",
        ),
        ("library", {**LIBRARY, "near_share": 2}, "library.near_share: must be less than or equal to 1, got 2"),
        (
            "library",
            {**LIBRARY, "protocols": [{**PROTOCOL, "wire_ratio": 0.5}]},
            "protocols.0.wire_ratio: must be",
        ),
        ("library", {**LIBRARY, "protocols": [PROTOCOL, PROTOCOL]}, "protocols need different names, got ll, ll"),
        (
            "library",
            {**LIBRARY, "protocols": [PROTOCOL, {**PROTOCOL, "name": "ll128", "near_only": True}]},
            "the last of protocols must not be near_only, got ll128",
        ),
        ("library", {**LIBRARY, "in_switch": {"call_us": 75}}, "library.in_switch.link_share: missing"),
        ("version", 2, "version: must be 1, got 2"),
        ("version", None, "version: missing"),
        ("colour", "red", "colour: unknown key"),
        (f"{CLASS}.speed", 1, "link_classes.pcie.speed: unknown key"),
        (
            f"{CLASS}.bandwidth_gbit_per_s",
            0,
            "bandwidth_gbit_per_s: must be greater than or equal to 0.000000001, got 0",
        ),
        (
            f"{CLASS}.bandwidth_gbit_per_s",
            -1,
            "bandwidth_gbit_per_s: must be greater than or equal to 0.000000001, got -1",
        ),
        (f"{CLASS}.bandwidth_gbit_per_s", float("nan"), "bandwidth_gbit_per_s: must be a finite number, got nan"),
        (f"{CLASS}.bandwidth_gbit_per_s", float("inf"), "bandwidth_gbit_per_s: must be a finite number, got inf"),
        (f"{CLASS}.bandwidth_gbit_per_s", "speed", "bandwidth_gbit_per_s: must be a number (or, where"),
        (f"{CLASS}.bandwidth_gbit_per_s", True, "bandwidth_gbit_per_s: must be a number (or, where"),
        (f"{CLASS}.bandwidth_gbyte_per_s", 8, "pcie: needs exactly one of bandwidth_gbyte_per_s, bandwidth_gbit_per_s"),
        (f"{CLASS}.bandwidth_gbit_per_s", None, "bandwidth_gbit_per_s, got none"),
        (f"{CLASS}.latency_us", -1, "latency_us: must be greater than or equal to 0, got -1"),
        (f"{CLASS}.latency_us", None, "needs exactly one of latency_us, latency_table, got none"),
        (f"{CLASS}.duplex", "both", "duplex: must be 'full' or 'half', got 'both'"),
        (f"{CLASS}.sharing", "none", "sharing: must be 'fair' or 'exclusive', got 'none'"),
        (
            f"{LEVEL}.devices.0.memory_gib",
            0,
            "levels.0.devices.0.memory_gib: must be greater than or equal to 0.000000001, got 0",
        ),
        (f"{LEVEL}.devices.0.count", 0, "levels.0.devices.0.count: must be greater than or equal to 1, got 0"),
        (f"{LEVEL}.devices.0.name", "a/b", "levels.0.devices.0.name: String should match pattern"),
        (f"{LEVEL}.devices.0.name", "new", "got 'new' twice"),
        (f"{LEVEL}.devices", [], "devices of 'pair' must be at least one"),
        (
            f"{LEVEL}.links.0.class",
            "pci",
            "levels.0.links.0.class: must be one of pcie, got 'pci'; did you mean 'pcie'?",
        ),
        (f"{LEVEL}.links.0.between", ["*", "swich"], "must match a vertex, got 'swich'; did you mean 'switch'?"),
        (f"{LEVEL}.links.0.between", ["*"], "levels.0.links.0.between"),
        (f"{LEVEL}.count", 2, "levels.0 (machine) is innermost and takes no count"),
        ("levels", [], "levels needs at least one level, got none"),
        (
            "parameters",
            {"n": {"default": 1, "minimum": 2, "maximum": 3}},
            "needs minimum <= default <= maximum, got 2, 1",
        ),
    ],
)
def test_broken_rules_are_named_with_their_path(tmp_path, path, value, message):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, changed(path, value))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_levels_above_others_say_how_many(tmp_path):
    outer = [FLAT["levels"][0], {"name": "rack"}]
    with pytest.raises(ConfigError, match=r"levels.1 \(rack\) needs a count of machine"):
        load(tmp_path, changed("levels", outer))
    outer[1] = {"name": "rack", "count": 2, "at_most": 1}
    with pytest.raises(ConfigError, match=r"levels.1 is outermost and takes no at_most"):
        load(tmp_path, changed("levels", outer))
    with pytest.raises(ConfigError, match=r"levels.2 \(hall\) takes no count: it holds all copies of rack"):
        load(tmp_path, changed("levels", [*outer, {"name": "hall", "count": 2}]))


def test_latency_tables_rise_in_size(tmp_path):
    tree = changed("link_classes.pcie.latency_us", None, changed("link_classes.pcie.latency_table", []))
    with pytest.raises(ConfigError, match="latency_table needs a row, got none"):
        load(tmp_path, tree)
    rows = [{"size_kbyte": 2, "latency_us": 1}, {"size_kbyte": 1, "latency_us": 1}]
    tree = changed("link_classes.pcie.latency_us", None, changed("link_classes.pcie.latency_table", rows))
    with pytest.raises(ConfigError, match=r"needs rising sizes, got \[2000.0, 1000.0\] bytes"):
        load(tmp_path, tree)


def test_all_errors_come_in_one_line(tmp_path):
    tree = changed(f"{CLASS}.latency_us", -1, changed(f"{LEVEL}.devices.1.memory_gib", 0, changed("version", 3)))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, tree)
    problems = str(caught.value).split(": ", 1)[1].split("; ")
    assert [problem.split(":")[0] for problem in problems] == [
        "version",
        "link_classes.pcie.latency_us",
        "levels.0.devices.1.memory_gib",
    ]


def test_devices_that_cannot_reach_each_other_are_named(tmp_path):
    with pytest.raises(UnreachableError, match="from device 'old' to 'new' in cluster 'pair'"):
        load(tmp_path, changed(f"{LEVEL}.links.0.between", ["old", "switch"]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NESTED[: NESTED.index("devices") + 20], "is not YAML or is cut off"),
        ("{", "is not YAML or is cut off"),
        ("", "must hold a mapping, got NoneType"),
        ("- 1", "must hold a mapping, got list"),
        ("just text", "must hold a mapping, got str"),
        (NESTED[: NESTED.index("levels")], "levels: missing"),
        ("parameters: 3", "parameters: must be a valid mapping, got 3"),
    ],
)
def test_files_that_are_cut_off_or_something_else(tmp_path, text, message):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_text(tmp_path):
    (tmp_path / "mine.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"mine\.yaml must be text in UTF-8"):
        load_cluster(str(tmp_path / "mine.yaml"))
