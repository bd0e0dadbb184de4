"""Files of machines made cluster files: every sample, several of one machine, contradictions."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.machines.generations import generation_of
from hwprofiles.machines.gpu_names import gpu_of_model
from hwprofiles.machines.machine_file import machine_file
from hwprofiles.machines.written_cluster import write_cluster_file
from hwprofiles.readers.recognise import read_facts
from planner.cost.library_rounds import library_collective_s
from planner.topology.network_routes import ClusterRoutes
from reports.drawings.draw_cluster import cluster_drawing

DATA = Path(__file__).parents[1] / "data"
MACHINES = DATA / "machines"
DEVICES = {
    "a100": "a100-80gb",
    "c4140": "v100-16gb",
    "dgx1": "p100",
    "gtx1070x6": "gtx-1080",
    "k80": "k80",
    "p40": "titanxp",
    "t4": "t4",
    "v100": "v100-16gb",
}
TABLES = {path.stem.split("_")[0]: path for path in sorted((DATA / "topo").glob("*.txt"))}


def made(*names, **options):
    """The cluster file that samples make; those without a suffix are topology tables."""
    paths = [TABLES[name] if "." not in name else MACHINES / name for name in names]
    return machine_file(paths, **options)


def bus_bytes_per_s(cluster, devices=None, size=2.0**28):
    """Bus bandwidth of a long all-reduce as the library runs it."""
    ranks = tuple(range(devices or len(cluster.devices)))
    seconds = library_collective_s(ClusterRoutes(cluster), "all-reduce", ranks, np.array([size]))[0]
    return 2 * (len(ranks) - 1) / len(ranks) * size / seconds


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_table_is_written_read_back_and_drawn(tmp_path, name):
    found = made(name, device=DEVICES[name])
    write_cluster_file(tmp_path / "cluster.yaml", found.content, "written")
    cluster = load_cluster(str(tmp_path / "cluster.yaml"))

    assert cluster.devices == found.cluster.devices
    assert cluster.links == found.cluster.links
    assert cluster.library is not None
    # the makers of processors are not read, though the cluster that A100's library is taken of has AMD's
    assert not cluster.library.amd_hosts
    drawing = cluster_drawing(cluster)
    assert drawing
    assert found.content["assumed"]


def test_rings_of_a_dgx1_follow_its_nvlinks():
    """Four NVLinks of 18 GB/s leave each GPU; a tuned library reaches nearly all, one ring of one link a quarter."""
    read, shipped = made("dgx1", device="p100").cluster, load_cluster("dgx1-p100")
    assert bus_bytes_per_s(read) == pytest.approx(bus_bytes_per_s(shipped), rel=1e-6)
    assert 0.9 * 4 * 18e9 < bus_bytes_per_s(read) < 4 * 18e9


@pytest.mark.parametrize(("name", "device"), [("dgx1", "p100"), ("v100", "v100-16gb"), ("c4140", "v100-16gb")])
def test_plain_rings_follow_nvlinks_too(name, device):
    """The ring of any all-reduce crosses NVLinks only: in the order of the names it would cross the sockets."""
    cluster = made(name, device=device).cluster
    order = np.argsort(ClusterRoutes(cluster).rank)
    assert [len(cluster.route(a, b)) for a, b in zip(order, np.roll(order, -1), strict=True)] == [1] * len(order)


def test_rings_of_a_v100_mesh_use_all_six_links():
    """Each V100 of the mesh has six NVLinks of 22 GB/s."""
    assert 0.85 * 6 * 22e9 < bus_bytes_per_s(made("v100", device="v100-16gb").cluster) < 6 * 22e9


def test_a_product_name_in_a_file_is_the_device():
    found = made("dgx1", "nvidia_smi_l.txt")
    assert {device.profile for device in found.cluster.devices} == {"p100"}
    assert made("p2p_m60_4gpu.txt").cluster.devices[0].profile == "m60"
    assert made("all_reduce_a100_8gpu.txt").cluster.devices[0].profile == "a100-40gb"


PRODUCTS = {
    "NVIDIA GeForce RTX 2080 Ti": "rtx-2080ti",
    "Quadro RTX 8000": "rtx-8000",
    "NVIDIA RTX A6000": "rtx-a6000",
    "NVIDIA GeForce RTX 3080": "rtx-3080",
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "GeForce RTX 2070 with Max-Q Design": "rtx-2070-max-q",
    "GeForce RTX 2080 with Max-Q Design": "rtx-2080-max-q",
    "GeForce RTX 2080 Super with Max-Q Design": "rtx-2080-super-max-q",
    "Tesla T4": "t4",
}


@pytest.mark.parametrize("product", PRODUCTS)
def test_products_as_nvidia_smi_names_them_have_their_profile(product):
    assert gpu_of_model(product, "nvidia-smi").profile == PRODUCTS[product]


def test_an_nvlink_bridge_of_workstations_is_slower_than_those_of_servers():
    """Four links of an RTX A6000 carry 56.25 GB/s one way, four of an A100 100 GB/s, at the same share of it."""
    workstation, server = generation_of("rtx-a6000"), generation_of("a100-40gb")
    assert workstation.nvlink_gbyte_per_s / server.nvlink_gbyte_per_s == pytest.approx(56.25 / 100, rel=0.01)
    assert workstation.rates.pcie_bytes_per_s == server.rates.pcie_bytes_per_s
    assert generation_of("rtx-8000@float16") == generation_of("t4")


@pytest.mark.parametrize("product", ["NVIDIA GeForce RTX 3080 Ti", "NVIDIA GeForce RTX 2080", "RTX 3090 Ti"])
def test_other_cards_of_a_series_have_none(product):
    with pytest.raises(ConfigError, match=f"no compute profile is known for {product!r}"):
        gpu_of_model(product, "nvidia-smi")


def test_nccl_and_lstopo_show_one_machine():
    """Both files were written of one machine: links from one, product and memory from the other."""
    found = made("nccl_v100_4gpu.xml", "lstopo_v100_4gpu.xml")
    cluster, shipped = found.cluster, load_cluster("abci-v100:nodes=1")
    assert bus_bytes_per_s(cluster) == pytest.approx(bus_bytes_per_s(shipped), rel=1e-6)
    assert cluster.devices[0].memory_bytes == pytest.approx(16541056 * 1024, rel=1e-3)
    alone = made("lstopo_v100_4gpu.xml").cluster  # without NVLinks
    ways = [" ".join(alone.vertices[alone.links[i].target][9:] for i in alone.route(0, b)) for b in (1, 2)]
    assert ways == ["plx0 GPU1", "plx0 system0 plx1 GPU2"]
    assert "eth0" not in cluster.vertices  # a tenth of the others' rate


def test_levels_of_xml_trees_are_those_of_nvidia_smi():
    """Two GPUs of a switch, cards at the same switch, sockets apart: PIX and SYS."""
    nccl, lstopo = (read_facts(MACHINES / f"{name}_v100_4gpu.xml") for name in ("nccl", "lstopo"))
    assert nccl.levels[0][1:4] == lstopo.levels[0][1:4] == (0, 4, 4)
    assert [card.name for card in lstopo.cards] == ["mlx5_0", "mlx5_1"]
    assert lstopo.levels[0][4:] == (0, 4)
    named = [card.name for card in nccl.cards]
    assert nccl.levels[0][4 + named.index("mlx5_0")] == 0


@pytest.mark.parametrize(("name", "device"), [("a100", "a100-80gb"), ("", "")])
def test_measured_pairs_set_the_rates(name, device):
    """Every pair of the machine is within a tenth of what was measured, with a table of links and without."""
    names = [*([name] if name else []), "p2p_a100_nvswitch_8gpu.txt"]
    cluster = made(*names, device=device).cluster
    measured = read_facts(MACHINES / "p2p_a100_nvswitch_8gpu.txt")
    for a in range(8):
        for b in range(8):
            if a != b:
                rate = min(cluster.bandwidth[i] for i in cluster.route(a, b))
                assert rate == pytest.approx(measured.bytes_per_s[a][b], rel=0.1)
                assert cluster.latency_s(a, b, 4.0) == pytest.approx(measured.latency_s[a][b], rel=0.25)


def test_pairs_of_different_rates_have_links_of_their_own(tmp_path):
    rows = ["0 700.0 68.0 29.0", "1 68.5 700.0 28.0", "2 28.5 29.5 700.0"]
    (tmp_path / "p2p.txt").write_text(
        "Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n   D\\D  0  1  2\n" + "\n".join(rows)
    )
    cluster = machine_file([tmp_path / "p2p.txt"], device="v100-16gb").cluster
    assert cluster.bandwidth[cluster.route(0, 1)[0]] == pytest.approx(68.25e9, rel=0.05)
    assert cluster.bandwidth[cluster.route(2, 0)[0]] == pytest.approx(28.75e9, rel=0.05)


def test_switches_and_cards_become_a_network():
    """18 machines of three cards that are up: eight below the first leaf; rates are those of ibstat."""
    found = made("dgx1", "nvidia_smi_l.txt", "ibstat_dgx1.txt", "topology.conf")
    cluster = found.cluster
    assert cluster.node_count == 18
    near, far = cluster.route(0, 8), cluster.route(0, 8 * 17)
    names = [cluster.vertices[cluster.links[i].target] for i in far]
    assert len(far) == len(near) + 2
    assert "spine" in names
    cards = {link.bandwidth_bytes_per_s for link in cluster.links if link.link_class == "card-100"}
    assert min(cards) == pytest.approx(12.12e9)
    uplink = max(cards)  # eight machines with three cards each
    assert uplink == pytest.approx(24 * 12.12e9)
    assert not any("mlx5_3" in vertex for vertex in cluster.vertices)
    refined = machine_file([MACHINES / "topology.conf"], base="dgx-a100").cluster
    assert (refined.node_count, len(refined.devices)) == (18, 144)
    assert max(link.bandwidth_bytes_per_s for link in refined.links) == pytest.approx(64 * 24.3e9)


def test_collectives_alone_give_a_machine_of_their_bus_bandwidth():
    """The rate of the links is that of the longest message; two machines where ranks ran on two."""
    found = made("all_reduce_a100_2x8gpu.txt")
    assert (found.cluster.node_count, len(found.cluster.devices)) == (2, 16)
    assert found.collectives[0].collective == "all-reduce"


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (("dgx1",), {}, "does not name its GPUs: name their compute profile with --device"),
        (("dgx1",), {"device": "p10"}, "device must be a compute profile.*did you mean"),
        (("dgx1", "c4140"), {"device": "p100"}, "contradiction: .*shows 8 GPUs, .*c4140.* 4"),
        (("dgx1", "v100"), {"device": "p100"}, "contradiction: 1 NVLinks join GPU1 and GPU2 .* 2 in"),
        (("dgx1", "p2p_m60_4gpu.txt"), {"device": "p100"}, "contradiction: .* shows 8 GPUs, .* 4"),
        (("c4140", "p2p_m60_4gpu.txt"), {}, "contradiction: .* GB/s over each nvlink, which usually carries 18"),
        (("c4140", "lstopo_v100_4gpu.xml", "p2p_m60_4gpu.txt"), {}, "contradiction: GPUs are .*V100.* M60"),
        (("ibstat_dgx1.txt",), {}, "does not say how GPUs are joined"),
        (("nvidia_smi_q.xml",), {}, "does not say how GPUs are joined"),
        (("c4140", "ibstat_dgx1.txt"), {"device": "v100-16gb"}, "contradiction: .* shows the card mlx5_1"),
        (("topology.conf",), {"base": "titanx-4"}, None),
        (("a100", "topology.conf"), {"device": "a100-80gb"}, "needs a machine with network cards"),
        (("dgx1",), {"base": "dgx-a100"}, "both say how GPUs are joined"),
        (("nccl_v100_4gpu.xml",), {}, "compute capability 7; name it with --device: v100-16gb or v100-32gb"),
    ],
)
def test_what_is_missing_or_contradicts_is_named(names, options, message):
    if message is None:
        assert made(*names, **options).cluster.node_count == 18
        return
    with pytest.raises(ConfigError, match=message):
        made(*names, **options)


def test_assumed_is_part_of_cluster_files(tmp_path):
    write_cluster_file(tmp_path / "c.yaml", made("k80", device="k80").content, "written")
    text = (tmp_path / "c.yaml").read_text()
    assert any("mlx4_0" in line for line in yaml.safe_load(text)["assumed"])
    again = machine_file([tmp_path / "c.yaml"])
    assert again.cluster.links == load_cluster(str(tmp_path / "c.yaml")).links
