"""Order of gradient sums: updates at the end against first layers first, over gloo between the hosts of a lab.

Run as ``python tests/benchmarks/exchange_order.py [--rounds 8] [MODEL:BATCH ...]`` (Linux; some five minutes); prints a
table, one row a network and order.  Four hosts at 200 Mbit/s, where waits stand in for arithmetic; all orders take
turns in one process group.  The gain is the median over rounds of the time with all updates at the end over the time
with the order, of the same round, with its quartiles; beside it stands the simulation's.

The table in ``docs/streams.md`` was measured under a load of 5 to 10 on two cores.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np

from executor.lab.inside import is_inside, lab_hosts, run_inside
from executor.validation.validation_request import ValidationRequest
from executor.validation.validation_run import validate
from hwprofiles.catalogue.cluster_catalogue import load_cluster

LAB = "lab-4"
QUESTIONS = ("alexnet-cifar:128", "alexnet-cifar:512", "alexnet-cifar:1024", "vgg11-cifar:512", "lenet5:256")


def table(model, batch, hosts, rounds):
    """Run one network; one row an order."""
    request = ValidationRequest(
        batch=batch,
        strategies=("data",),
        processes=4,
        cluster=LAB,
        rounds=rounds,
        spread=1e-9,
        turn_s=4.0,
        budget_s=240.0,
        gradient_sync_orders=("ready", "reuse"),
        stand_in_compute=True,
        device="cpu",
    )
    found = validate(model, request, hosts=hosts)
    plain = found.strategies[0]
    for row in found.strategies:
        assert row.kinds["measured_s"].notna().all()
        gains = np.array(plain.rounds_s) / np.array(row.rounds_s)
        low, middle, high = np.quantile(gains, [0.25, 0.5, 0.75])
        name = row.name.removeprefix("data, ") if row is not plain else "end"
        print(
            f"{model:14}{batch:6} {name:6}{row.predicted_s * 1e3:10.1f}{row.measured_s * 1e3:10.1f}{row.error:+8.1%}"
            f"{plain.predicted_s / row.predicted_s:11.3f}{middle:10.3f} ({low:.3f}-{high:.3f}){row.rounds:5}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("questions", nargs="*", default=QUESTIONS, metavar="MODEL:BATCH")
    parser.add_argument("--rounds", type=int, default=8)
    chosen = parser.parse_args()
    if not is_inside():
        sys.exit(run_inside([sys.executable, str(Path(__file__).resolve()), *sys.argv[1:]]))
    print(f"data parallel on {LAB}, waits for arithmetic, load {os.getloadavg()[0]:.1f}")
    print(
        f"{'model':14}{'batch':>6} {'order':6}{'predicted':>10}{'measured':>10}{'error':>8}{'gain pred.':>11}"
        f"{'measured, quartiles':>24}{'n':>5}"
    )
    with lab_hosts(load_cluster(LAB)) as hosts:
        for question in chosen.questions:
            model, _, batch = question.rpartition(":")
            table(model, int(batch), hosts, chosen.rounds)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
