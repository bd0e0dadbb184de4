"""Compressed strategies in a network-bound lab against their simulation, and what compression brings there.

Run as ``python tests/benchmarks/lab_compression.py [stand-in] [arithmetic]`` (Linux; about five minutes each); prints a
table for each question.  Codes are real throughout: encoded, sent and decoded on this machine, and predicted by samples
of the same data types.  ``stand-in``: waits for arithmetic.  ``arithmetic``: real arithmetic too, with more ranks than
cores.  The machine should have nothing else to do.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from executor.lab import is_inside, lab_hosts, run_inside
from executor.options import RunOptions
from executor.validation.validate import validate
from hwprofiles.catalogue import load_cluster


@dataclass(frozen=True)
class Question:
    model: str
    batch: int
    lab: str
    types: tuple[str, ...] = ("dynamic-tree",)
    exchange: str = "ps-spread"


QUESTIONS = {
    "stand-in": [
        Question("vgg11-cifar", 64, "lab-4", ("dynamic-tree", "linear", "one-bit")),
        Question("vgg11-cifar", 64, "lab-4", exchange="ring"),
        Question("vgg11-cifar", 64, "lab-2x2"),
    ],
    "arithmetic": [Question("vgg11-cifar", 32, "lab-4")],
}


def table(question, stand_in):
    """Validate and print; one row a strategy."""
    cluster = load_cluster(question.lab)
    with lab_hosts(cluster) as hosts:
        found = validate(
            question.model, batch=question.batch, strategies=["data"], processes=len(cluster.devices),
            cluster=question.lab, hosts=hosts, exchange=question.exchange, compress_gradients=question.types,
            run=RunOptions(plan="", stand_in=stand_in, real_codes=stand_in, device="cpu"), rounds=6, budget_s=90.0,
        )  # fmt: skip
    loads = " to ".join(found.environment[f"load average {when}"] for when in ("before", "after"))
    what = "waits for arithmetic, real codes" if stand_in else "real arithmetic and codes"
    print(f"\n{question.model}, batch {question.batch}, {question.lab}, {question.exchange}, {what}; load {loads}")
    print(f"{'':24}{'predicted ms':>14}{'measured ms':>13}{'quartiles':>20}{'n':>5}{'error':>8}{'speedup':>18}")
    speedups = {row.name: f"{row.predicted:.2f} / {row.measured:.2f}" for row in found.speedups}
    for s in found.strategies:
        quartiles = " to ".join(f"{1e3 * value:.1f}" for value in s.quartiles_s)
        print(
            f"{s.name:24}{1e3 * s.predicted_s:>14.1f}{1e3 * s.measured_s:>13.1f}{quartiles:>20}"
            f"{len(s.iterations_s):5}{s.error:+8.1%}{speedups.get(s.name, ''):>18}"
        )
    print(f"bytes {'equal' if all(s.bytes_equal for s in found.strategies) else 'differ'}", flush=True)


if __name__ == "__main__":
    chosen = sys.argv[1:] or list(QUESTIONS)
    if not is_inside():
        sys.exit(run_inside([sys.executable, str(Path(__file__).resolve()), *chosen]))
    for name in chosen:
        for asked in QUESTIONS[name]:
            table(asked, stand_in=name == "stand-in")
