"""Files that are cut off, contradict themselves or are none of the kinds: one line each."""

from pathlib import Path

import pytest

from groundwork.errors import ConfigError
from hwprofiles.readers.recognise import read_facts
from hwprofiles.readers.switch_tree import switch_tree

LONG = "7" * 5000
"""More digits than Python makes a number of."""
MACHINES = Path(__file__).parents[1] / "data" / "machines"
BOMB = """<?xml version="1.0"?><!DOCTYPE system [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]><system>&c;</system>"""
OUTSIDE = '<!DOCTYPE system [<!ENTITY a SYSTEM "file:///etc/hostname">]><system>&a;</system>'
LSTOPO_GPU = '<object type="PCIDev" pci_type="0302"/>'
LSTOPO_CARD = '<object type="PCIDev" pci_type="0200"><object type="OSDev" osdev_type="2" name="n"/></object>'
NCCL_GPU = '<pci busid="a"><gpu dev="0"/></pci>'
NCCL_NETS = "".join(f'<net name="n{i}"/>' for i in range(257))


def facts(tmp_path, text):
    (tmp_path / "file.txt").write_text(text)
    return read_facts(tmp_path / "file.txt")


def changed(name, *changes):
    text = (MACHINES / name).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is of no known kind"),
        ("hello", "is of no known kind; known: nvidia-smi topo -m"),
        ("<html></html>", "no known kind: <html>"),
        ("<system><cpu>", "is not XML or is cut off"),
        ("<system></system>", "shows no GPU"),
        (BOMB, "must declare no entities"),
        (OUTSIDE, "must declare no entities"),
        ("<topology>" + "<object>" * 100 + "</object>" * 100 + "</topology>", "nested at most 64"),
        ("GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX", "file.txt: topology row GPU1 must have 2 entries"),
        ("GPU0 GPU0\nGPU0 X PIX\nGPU0 X PIX", "must name each column once"),
        (
            "GPU0 GPU1 GPU2\nGPU0 X PIX SYS\nGPU1 PIX X PIX\nGPU2 SYS PIX X\n",
            "contradicts itself: GPU2 and GPU0 are both near GPU1",
        ),
        (changed("nccl_v100_4gpu.xml", ('dev="1"', 'dev="one"')), "dev of gpu must be a whole number"),
        (changed("nccl_v100_4gpu.xml", ('dev="1"', 'dev="--5"')), "dev of gpu must be a whole number, got '--5'"),
        (changed("nccl_v100_4gpu.xml", ('speed="', 'speed="-')), "speed of net must be a whole number >= 0, got -"),
        (
            changed("nccl_v100_4gpu.xml", ('<nvlink target="0000:1b:00.0" count="2"', '<nvlink target="x" count="2"')),
            "contradicts itself: .* NVLinks from GPU",
        ),
        (changed("lstopo_v100_4gpu.xml", ("0302", "0108")), "shows no GPU; lstopo --whole-io"),
        (changed("p2p_m60_4gpu.txt", ("(GB/s)", "(GiB/s)")), "bandwidth must be in GB/s, got 'GiB/s'"),
        (changed("p2p_m60_4gpu.txt")[:450], "is cut off: it must have 4 rows of 4 numbers"),
        (changed("all_reduce_a100_8gpu.txt", ("(us)", "(ms)")), "times must be in us, got 'ms'"),
        (changed("all_reduce_a100_8gpu.txt", (" float ", " -1 ")).split("#        (B)")[0], "has no rows of results"),
        (changed("all_reduce_a100_8gpu.txt", ("Rank  0", "Rank  9")), "must list its ranks 0, 1, ..."),
        (changed("ibstat_dgx1.txt", ("Active", "Down")), "lists no card with a port that is up"),
        (changed("ibstat_dgx1.txt", ("Rate: 100", "Rate: fast")), "Rate of mlx5_0 must be a number of Gbit/s"),
        (changed("nvidia_smi_l.txt", ("GPU 3:", "GPU 2:")), "must list GPU 0, 1, ... in order"),
        (changed("nvidia_smi_l.txt", ("GPU 3:", f"GPU {LONG}:")), "must list GPU 0, 1, ... in order"),
        (changed("all_reduce_a100_8gpu.txt", ("Rank  0", f"Rank  {LONG}")), "must list its ranks 0, 1, ..."),
        (changed("p2p_m60_4gpu.txt", ("Device: 0,", f"Device: {LONG},")), "contradicts itself: 4 devices"),
        ("SwitchName=a Nodes=n1 Switches=b", "must have Nodes or Switches, got nodes and switches"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1", "contradicts itself: n1 is below a and b"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2", "one switch above all others, got 2"),
        ("SwitchName=a Switches=b", "joins the switch b, which is not listed"),
        ("SwitchName=a Nodes=n[1-", "is no list of names"),
        ("SwitchName=a Nodes=n[5-1]", "is no range of numbers"),
        ("SwitchName=a Nodes=n[0-99999999]", "at most 100,000"),
        ("SwitchName=a Nodes=n[" + ",".join(["0-99999"] * 200) + "]", "at most 100,000"),
        ("SwitchName=a Nodes=n" + "[0-99999]" * 1000, "at most 100,000"),
        ("SwitchName=a Nodes=" + "n" * 300 + "[0-9]", "names must have at most 256 characters"),
        ("SwitchName=a[1-400] Nodes=n[1-400]", "at most 100,000"),
        (f"<topology>{LSTOPO_GPU * 257}</topology>", "must show at most 256 GPUs, got 257"),
        (f"<topology>{LSTOPO_GPU}{LSTOPO_CARD * 257}</topology>", "must show at most 256 cards, got 257"),
        (f"<system><cpu>{NCCL_GPU * 257}</cpu></system>", "must show at most 256 GPUs, got 257"),
        (
            f"<system><cpu>{NCCL_GPU}<nic>{NCCL_NETS}</nic></cpu></system>",
            "must show at most 256 cards, got 257",
        ),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "one switch above all others, got 0"),
    ],
)
def test_broken_files_are_named(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message) as raised:
        facts(tmp_path, text)
    assert "\n" not in str(raised.value)


def test_machines_of_a_tree_are_counted():
    text = "SwitchName=s0 Nodes=a[001-004,9]x[1-2]\nSwitchName=s1 Nodes=b\nSwitchName=t Switches=s[0-1]"
    tree = switch_tree(text, "file")
    assert (tree.machines, tree.most_below, tree.even) == (11, (10, 2), False)


def test_lines_of_mpi_have_a_prefix(tmp_path):
    """mpirun --tag-output begins every line with the rank."""
    text = (MACHINES / "all_reduce_a100_8gpu.txt").read_text()
    tagged = "\n".join(f"[1,0]<stdout>:{line}" for line in text.splitlines())
    plain, found = facts(tmp_path, text), facts(tmp_path, tagged)
    assert (found.collective, found.size_bytes, found.time_s) == (plain.collective, plain.size_bytes, plain.time_s)
    assert found.collective == "all-reduce"
    assert len(set(found.hosts)) == 1
    assert found.models[0] == "NVIDIA A100-SXM4-40GB"
