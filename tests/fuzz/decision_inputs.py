"""Commands of questions of size, and files of scenarios, to spoil."""

from pathlib import Path

DECISIONS = {
    "deadline": "size deadline lenet5 --cluster titanx-4 --batch-per-device 8 --dataset 1024 --epochs 1 --within 1s "
    "--most-devices 8 --node-mtbf 1d --checkpoint 1s --restart 1min --price 2 --json",
    "largest batch": "size batch lenet5 --cluster titanx-4:device.*.memory_gib=0.02 --strategies data",
    "budget": "size budget lenet5 --cluster cluster.yaml --batch 8 --dataset 1024 --epochs 1 --money 9 "
    "--price cluster.yaml=1 --within 1h --most-devices 4 --out new",
    "network": "size network lenet5 --cluster titanx-4:nodes=2 --link fdr --loss 10",
    "scenarios": "whatif scenarios scenarios.yaml --top 1 --out new",
    "switches": "whatif lenet5 --cluster titanx-4 --batch 16 --strategies data "
    "--set nodes.*.switches.gpus_per_port=4 --set device.*.profile=p100 --json",
    "offers": "size offers lenet5 --cluster titanx-4 --cluster cluster.yaml --dataset 1024 --epochs 2 --price 1",
}
"""Valid command lines, as in ``inputs``."""
DECISION_FILES = {"scenarios": "scenarios.yaml", "budget": "cluster.yaml", "offers": "cluster.yaml"}
"""The file of each command that is spoiled."""


def put_scenario_file() -> None:
    """Write a valid file of scenarios into the working folder."""
    Path("scenarios.yaml").write_text(
        "version: 1\nmodel: lenet5\ncluster: titanx-4\nbatch_per_device: 4\nstrategies: [data]\nscenarios:\n"
        "  slow: {link.slot.bandwidth_factor: 0.5}\n  more: {from: [slow], nodes: 2, batch: 16}\n"
    )
