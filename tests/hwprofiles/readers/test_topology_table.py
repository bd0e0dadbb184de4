"""The reader of ``nvidia-smi topo -m`` on tables that real machines printed."""

import re
from pathlib import Path

import pytest

from groundwork.errors import ConfigError
from hwprofiles.machines.topology_graph import LinkRates, read_topo

TABLES = sorted((Path(__file__).parents[1] / "data" / "topo").glob("*.txt"))


def read(name, **options):
    path = next(path for path in TABLES if path.stem.startswith(name))
    return read_topo(path.read_text(), profile="p100", memory_bytes=2.0**34, **options)


def over(graph, a, b):
    """Vertices inside the route between two devices."""
    return [graph.vertices[graph.links[i].target] for i in graph.route(a, b)[:-1]]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_table_gives_its_gpus(path):
    """The number of GPUs is in the file's name; each reaches each, and NVLinks are direct."""
    graph = read_topo(path.read_text(), profile="p100", memory_bytes=2.0**34)
    count = int(re.search(r"_(\d)gpu", path.stem)[1])
    assert [device.name for device in graph.devices] == [f"GPU{i}" for i in range(count)]
    rows = [line.split() for line in path.read_text().splitlines()[1:]]
    for a in range(len(graph.devices)):
        for b in range(len(graph.devices)):
            if rows[a][1 + b].startswith("NV") and "nvswitch" not in graph.vertices:
                assert over(graph, a, b) == []


def test_nvswitch_is_told_from_pairwise_links():
    """Eight A100 with NV12 everywhere share twelve links each; four V100 with NV2 have two for each pair."""
    switched, meshed = read("a100_nvswitch"), read("c4140")
    assert over(switched, 0, 7) == ["nvswitch"]
    assert switched.bandwidth[switched.route(0, 7)[0]] == pytest.approx(12 * 22e9)
    assert meshed.bandwidth[meshed.route(0, 3)[0]] == pytest.approx(2 * 22e9)


def test_pcie_trees_are_those_of_the_words():
    assert over(read("gtx1070"), 0, 2) == ["plx0"]
    assert over(read("gtx1070"), 0, 3) == ["plx0", "host0", "plx1"]
    assert over(read("k80_dual"), 0, 2) == ["plx0", "system0", "host0", "plx1"]
    assert over(read("p40"), 0, 7) == ["plx0", "bridge0", "plx1"]
    assert over(read("t4"), 0, 1) == ["system0", "socket0"]


def test_dgx1_relations_hidden_by_nvlink_follow_from_the_network_cards():
    """GPU0 and GPU1 print NV1, but both are one switch from mlx5_0; the way to GPU5 starts at that switch."""
    graph = read("dgx1", rates=LinkRates(nvlink_bytes_per_s=18e9))
    assert over(graph, 0, 5) == ["plx0", "host0", "system0", "host1", "plx2"]
    assert graph.bandwidth[graph.route(0, 4)[0]] == 18e9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must start with a line of GPU names"),
        ("nothing here", "must start with a line of GPU names"),
        ("GPU0 GPU1 CPU Affinity\nGPU0 X PIX 0-3\n", "topology row GPU1 must have 2 entries, got 0"),
        ("GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX", "topology row GPU1 must have 2 entries, got 1"),
        ("GPU0 GPU1\nGPU0 X FOO\nGPU1 FOO X", "topology entry GPU0, GPU1 must be NV# or one of PIX, .*got 'FOO'"),
        ("GPU0 GPU1\nGPU0 X PIX\nGPU1 SYS X", "GPU0, GPU1 must equal GPU1, GPU0, got 'PIX' and 'SYS'"),
        ("GPU0\nGPU0 PIX", "topology entry GPU0, GPU0 must be X, got 'PIX'"),
    ],
)
def test_broken_tables_are_named(text, message):
    with pytest.raises(ConfigError, match=message):
        read_topo(text, profile="p100", memory_bytes=1.0)


def test_colours_and_legends_are_ignored():
    text = "\x1b[4mGPU0 GPU1 CPU Affinity\x1b[0m\nGPU0 X PIX 0\nGPU1 PIX X 0\n\nLegend:\n  X = Self\n"
    assert over(read_topo(text, profile="p100", memory_bytes=1.0), 0, 1) == ["plx0"]
