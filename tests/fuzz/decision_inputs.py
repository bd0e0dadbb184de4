"""Commands of questions of size, and files of scenarios, to spoil."""

__all__ = ["DECISIONS", "DECISION_FILES"]

DECISIONS = {
    "deadline": "size deadline lenet5 --cluster titanx-4 --batch-per-device 8 --dataset 1024 --epochs 1 --within 1s "
    "--most-devices 8 --node-mtbf 1d --checkpoint 1s --restart 1min --price 2 --json",
    "largest batch": "size batch lenet5 --cluster titanx-4:device.*.memory_gib=0.02 --strategies data",
    "budget": "size budget lenet5 --cluster cluster.yaml --batch 8 --dataset 1024 --epochs 1 --money 9 "
    "--price cluster.yaml=1 --within 1h --most-devices 4 --out new",
    "network": "size network lenet5 --cluster titanx-4:nodes=2 --link fdr --loss 10",
    "offers": "size offers lenet5 --cluster titanx-4 --cluster cluster.yaml --dataset 1024 --epochs 2 --price 1",
}
"""Valid command lines, as in ``inputs``."""
DECISION_FILES = {"budget": "cluster.yaml", "offers": "cluster.yaml"}
"""The file of each command that is spoiled."""
