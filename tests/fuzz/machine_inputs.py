"""Files that machines print about themselves, as inputs of ``orrery read``."""

import shutil
from pathlib import Path

_DATA = Path(__file__).parents[1] / "hwprofiles" / "data"
_SAMPLES = {
    "table.txt": "topo/dgx1_nv1_8gpu.txt",
    "switched.txt": "topo/a100_nvswitch_8gpu.txt",
    "nccl.xml": "machines/nccl_v100_4gpu.xml",
    "lstopo.xml": "machines/lstopo_v100_4gpu.xml",
    "log.xml": "machines/nvidia_smi_q.xml",
    "pairs.txt": "machines/p2p_a100_nvswitch_8gpu.txt",
    "collective.txt": "machines/all_reduce_a100_2x8gpu.txt",
    "cards.txt": "machines/ibstat_dgx1.txt",
    "switches.conf": "machines/topology.conf",
}
MACHINE_COMMANDS = {
    "read table": "read table.txt --device p100 --name here --out new.yaml",
    "read nccl": "read nccl.xml lstopo.xml --out new.yaml --json",
    "read lstopo": "read lstopo.xml --out new.yaml",
    "read log": "read log.xml nccl.xml --device v100-16gb --out new.yaml",
    "read pairs": "read switched.txt pairs.txt --out new.yaml",
    "read collective": "read collective.txt --out new.yaml",
    "read cards": "read table.txt cards.txt switches.conf --device p100 --out new.yaml",
    "read switches": "read switches.conf --cluster dgx-a100 --out new.yaml",
    "read refined": "read cluster.yaml --out new.yaml",
    "calibrate library": "calibrate ten.txt --cluster dgx-a100 --out new.yaml",
}
MACHINE_FILES = {
    "read table": "table.txt",
    "read nccl": "nccl.xml",
    "read lstopo": "lstopo.xml",
    "read log": "log.xml",
    "read pairs": "pairs.txt",
    "read collective": "collective.txt",
    "read cards": "cards.txt",
    "read switches": "switches.conf",
    "read refined": "cluster.yaml",
    "calibrate library": "ten.txt",
}
"""The file of each command that is spoiled."""


def put_machine_files(folder: Path) -> None:
    """Put a valid file of every kind that machines print into a folder."""
    for name, sample in _SAMPLES.items():
        shutil.copy(_DATA / sample, folder / name)
    lines = (_DATA / "machines" / "all_reduce_a100_8gpu.txt").read_text().splitlines(keepends=True)
    (folder / "ten.txt").write_text("".join(lines[:25]))  # ten sizes, which are fitted in a second
