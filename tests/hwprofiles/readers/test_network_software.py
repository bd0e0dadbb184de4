"""Transports from what machines print: names of cards, link layers, NCCL's log."""

from pathlib import Path

import pytest

from groundwork.errors import ConfigError
from hwprofiles.machines.machine_file import machine_file
from hwprofiles.readers.card_list import cards_of
from hwprofiles.readers.nccl_tests import transport_of_cards, transport_of_log

MACHINES = Path(__file__).parents[1] / "data" / "machines"
TWO = (MACHINES / "all_reduce_a100_2x8gpu.txt").read_text()
PORT = "CA '{name}'\n\tPort 1:\n\t\tState: Active\n\t\tRate: {rate}\n\t\tLink layer: {layer}\n"


@pytest.mark.parametrize(
    ("names", "transport"),
    [
        (["rdmap16s27", "rdmap32s27"], "efa"),
        (["cxi0"], "slingshot"),
        (["hsn0", "hsn1"], "slingshot"),
        (["eth0", "mlx5_0"], "infiniband"),  # the library takes verbs where it can
        (["eno1"], "sockets"),
        (["nic0"], ""),
    ],
)
def test_names_of_cards(names, transport):
    assert transport_of_cards(names) == transport


@pytest.mark.parametrize(
    ("line", "transport"),
    [
        ("n0:7:7 [0] NCCL INFO Using network IB", "infiniband"),
        ("n0:7:7 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:10.0.0.1<0>", ""),
        ("n0:7:7 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0\nNCCL INFO Using network IB", "roce"),
        ("n0:7:7 [0] NCCL INFO Using network Socket", "sockets"),
        ("n0:7:7 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)\nUsing network AWS Libfabric", "efa"),
        ("n0:7:7 [0] NCCL INFO NET/OFI Selected provider is cxi", "slingshot"),
        ("n0:7:7 [0] NCCL INFO Using network FasTrak", "tcpx"),
        ("no log", ""),
    ],
)
def test_lines_of_the_log(line, transport):
    assert transport_of_log(line, "log") == transport


def test_link_layers_of_cards():
    cards = cards_of(PORT.format(name="mlx5_0", rate=100, layer="Ethernet"), "ibstat")
    assert [card.transport for card in cards.cards] == ["roce"]


def test_a_cluster_file_has_the_transport_that_a_log_names(tmp_path):
    """Collectives on two machines over sockets: the links between machines, and none inside them."""
    (tmp_path / "two.txt").write_text(f"n0:7:7 [0] NCCL INFO Using network Socket\n{TWO}")
    classes = machine_file([tmp_path / "two.txt"], base="dgx-a100").content["link_classes"]
    assert {name: row.get("transport") for name, row in classes.items()} == {
        "nvlink3": None,
        "pcie4-x16": None,
        "hdr": "sockets",
    }
    new = machine_file([tmp_path / "two.txt"], device="a100-40gb")
    assert [row["transport"] for row in new.content["link_classes"].values() if "transport" in row] == ["sockets"]
    assert not any(text.startswith("transport:") for text in new.content["assumed"])


def test_measurements_of_two_transports_are_refused(tmp_path):
    for name, network in (("ib.txt", "IB"), ("tcp.txt", "Socket")):
        (tmp_path / name).write_text(f"n0:7:7 [0] NCCL INFO Using network {network}\n{TWO}")
    with pytest.raises(ConfigError, match=r"must be of one transport, got infiniband \(.*ib.txt\) and sockets \(.*tcp"):
        machine_file([tmp_path / "ib.txt", tmp_path / "tcp.txt"], base="dgx-a100")
    (tmp_path / "both.txt").write_text(f"Using network IB\nUsing network Socket\n{TWO}")
    with pytest.raises(
        ConfigError, match=r"both.txt: measurements must be of one transport, got infiniband and sockets"
    ):
        machine_file([tmp_path / "both.txt"], base="dgx-a100")


def test_a_cluster_file_has_the_release_that_a_log_names(tmp_path):
    """One release between machines, of which the library's tuner is; two are refused, in one file or in two."""
    for name, release in (("old.txt", "2.18.3+cuda12.2"), ("new.txt", "2.21.5+cuda12.4")):
        (tmp_path / name).write_text(f"n0:7:7 [0] NCCL INFO NCCL version {release}\n{TWO}")
    assert machine_file([tmp_path / "old.txt"], base="dgx-a100").content["library"]["release"] == "2.18.3"
    with pytest.raises(ConfigError, match=r"of one release of NCCL, got 2.18.3 \(.*old.txt\) and 2.21.5 \(.*new.txt"):
        machine_file([tmp_path / "old.txt", tmp_path / "new.txt"], base="dgx-a100")
    (tmp_path / "both.txt").write_text(f"NCCL version 2.18.3\nNCCL version 2.21.5\n{TWO}")
    with pytest.raises(ConfigError, match=r"both.txt: measurements must be of one release of NCCL, got 2.18.3 and"):
        machine_file([tmp_path / "both.txt"], base="dgx-a100")
