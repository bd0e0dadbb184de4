"""Predicted against counted memory: peaks of real runs on processors, rank by rank.

Run as ``python tests/benchmarks/memory.py [--processes 1 2 4] [--models NAME ...] [--strategies NAME ...]
[--recompute]``; prints a table, one row a model, strategy and number of processes, of the rank that is furthest off.
Models are built in, or those of ``imported_networks.py``; strategies are named ones and schedules of pipelines.
Counted are all allocations of torch from the opening of a rank to the end of its second step; the prediction is made
from the program alone.

A rank that runs ahead of the others holds its messages until these are ready to receive them, which the prediction
does not know: under pipelines and in exchanges of many regions the same run may be a few percent above it, or not.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "executor"))
sys.path.insert(0, str(Path(__file__).parents[1] / "planner"))

from counted_memory import counted, imported, spread
from imported_networks import NETWORKS
from ranks import Ranks, options

from executor.checks.program_check import check_program
from executor.runtime.predicted_memory import predicted_bytes
from groundwork.errors import ConfigError
from planner.models.registry import load_model
from planner.strategies.micro_batches import MicroBatching
from planner.strategies.recomputation import recompute_of

BATCHES = {"lenet5": 256, "alexnet-cifar": 128, "vgg11-cifar": 64, "resnet-cifar": 64}
IMPORTED_BATCH = 32
STRATEGIES = ("data", "model", "spatial", "owt", "gpipe", "1f1b", "interleaved", "zero-bubble")


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--models", nargs="+", default=[*BATCHES, *NETWORKS])
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument("--recompute", action="store_true", help="with segments that are computed again")
    given = parser.parse_args()
    errors, chosen = [], options(steps=2)
    print(f"{'model':14} {'strategy':11} {'ranks':>5} {'counted':>11} {'predicted':>11} {'error':>8}")
    for count in given.processes:
        pool = Ranks(count)
        for model in given.models:
            known = model in NETWORKS
            graph = imported(model, IMPORTED_BATCH) if known else load_model(model, batch=BATCHES.get(model, 64))
            again = {"recompute": recompute_of(graph, "segments", MicroBatching())} if given.recompute else {}
            for name in given.strategies if count > 1 else given.strategies[:1]:
                try:
                    program = spread(graph, name, count, **again)
                    check_program(program, count)
                except ConfigError:
                    continue
                peaks = np.array([row[0] for row in pool.run(counted, program, chosen)])
                predicted = predicted_bytes(program, chosen)[:count]
                error = predicted / peaks - 1
                worst = int(np.abs(error).argmax())
                errors.append(error[worst])
                print(
                    f"{model:14} {name:11} {count:5} {peaks[worst] / 1e6:8.3f} MB {predicted[worst] / 1e6:8.3f} MB "
                    f"{error[worst]:+8.2%}",
                    flush=True,
                )
        pool.close()
    sizes = np.abs(errors)
    print(
        f"largest error {sizes.max():.2%}, mean {sizes.mean():.2%}, within 3 % {(sizes <= 0.03).sum()}, "
        f"over {len(errors)} runs"
    )


if __name__ == "__main__":
    main()
