"""Overlap on against off: gradients and regions sent beside arithmetic, or each waited for.

Run as ``python tests/benchmarks/overlap.py [--processes 2 4] [--models NAME ...] [--turns 15] [--steps 4]``; prints a
table, one row a model and strategy.  Both are run by the same processes over gloo, in turns of a few steps;
the gain is the median over turns of time without overlap over time with it, with its quartiles.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1] / "executor"))
sys.path.insert(0, str(Path(__file__).parents[1] / "planner"))

from plans import cluster_of, program_of
from ranks import Ranks, options

from executor.runtime.devices import CpuDevice
from executor.supervision.status_board import own_status
from executor.training.session import open_session
from planner.cost.cost_model import CostModel
from planner.models.registry import load_model
from planner.strategies.named_strategies import named_strategy

MODELS = ("lenet5", "alexnet-cifar", "vgg11-cifar")
STRATEGIES = ("data", "owt", "spatial")
BATCH = 32
WARM_UP = 2
"""Turns that are not counted."""


def compare(rank, program, turns, steps):
    """Seconds a step with and without overlap, shape (turns, 2)."""
    total = 2 * turns * steps
    worker = open_session(
        program, rank, options(steps=total), reduced=False, device=CpuDevice(), status=own_status(rank), steps=total
    ).worker
    seconds = np.zeros((turns, 2))
    for turn in range(turns):
        for place in (0, 1) if turn % 2 else (1, 0):
            worker.set_overlap(place == 0)
            dist.barrier()
            begin = time.perf_counter()
            for number in range(steps):
                worker.step(turn * steps + number)
            seconds[turn, place] = (time.perf_counter() - begin) / steps
    worker.close()
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--steps", type=int, default=4, help="steps of one side in a turn")
    chosen = parser.parse_args()
    print(f"{chosen.turns} turns of {chosen.steps} steps, load {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores")
    print(f"{'model':16}{'strategy':10}{'ranks':>6}{'on ms':>9}{'off ms':>9}{'off / on, quartiles':>24}")
    for count in chosen.processes:
        pool = Ranks(count)
        for name in chosen.models:
            for strategy in chosen.strategies:
                graph = load_model(name, batch=BATCH)
                model = CostModel(graph, cluster_of("titanx-4", count), "ring")
                program = program_of(model, named_strategy(strategy, graph, count))
                seconds = pool.run(compare, program, chosen.turns + WARM_UP, chosen.steps)
                taken = np.mean(seconds, axis=0)[WARM_UP:]
                on, off = np.median(taken, axis=0) * 1e3
                low, middle, high = np.quantile(taken[:, 1] / taken[:, 0], [0.25, 0.5, 0.75])
                print(
                    f"{name:16}{strategy:10}{count:6}{on:9.1f}{off:9.1f}{middle:10.3f} ({low:.2f}-{high:.2f})",
                    flush=True,
                )
        pool.close()
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
