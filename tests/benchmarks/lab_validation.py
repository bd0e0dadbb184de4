"""Strategies in the lab against their simulation: iteration times, the ladder, and the order of strategies.

Run as ``python tests/benchmarks/lab_validation.py [stand-in] [arithmetic]`` (Linux; about ten minutes each); prints a
table for each question.  ``stand-in``: four hosts at 200 Mbit/s, arithmetic replaced by waits.  ``arithmetic``: two
hosts, one busy process a core.  The machine should have nothing else to do.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from executor.lab.inside import is_inside, lab_hosts, run_inside
from executor.validation.validation_request import ValidationRequest
from executor.validation.validation_run import validate
from hwprofiles.catalogue.cluster_catalogue import load_cluster

STRATEGIES = ["data", "model", "owt", "spatial", "layerwise"]


@dataclass(frozen=True)
class Question:
    model: str
    batch: int
    lab: str


QUESTIONS = {
    "stand-in": [
        Question("vgg11-cifar", 64, "lab-4"),
        Question("vgg11-cifar", 64, "lab-2x2"),
        Question("alexnet-cifar", 128, "lab-4"),
    ],
    "arithmetic": [Question("alexnet-cifar", 64, "lab-4:nodes=2"), Question("vgg11-cifar", 32, "lab-4:nodes=2")],
}


def table(question, stand_in):
    """Validate and print; one row a strategy."""
    cluster = load_cluster(question.lab)
    request = ValidationRequest(
        batch=question.batch,
        strategies=tuple(STRATEGIES),
        processes=len(cluster.devices),
        cluster=question.lab,
        rounds=8,
        budget_s=150.0,
        stand_in_compute=stand_in,
        device="cpu",
    )
    with lab_hosts(cluster) as hosts:
        found = validate(question.model, request, hosts=hosts)
    loads = " to ".join(found.environment[f"load average {when}"] for when in ("before", "after"))
    what = "waits for arithmetic" if stand_in else "real arithmetic"
    print(f"\n{question.model}, batch {question.batch}, {question.lab}, {what}; load average {loads}")
    print(
        f"{'ms':12}{'additive':>10}{'overlap':>10}{'contention':>12}{'measured':>10}{'quartiles':>18}{'n':>5}{'error':>8}"
    )
    for s in found.strategies:
        ladder = [f"{1e3 * value:.1f}" for value in s.ladder_s.values()]
        quartiles = " to ".join(f"{1e3 * value:.1f}" for value in s.quartiles_s)
        widths = zip(ladder, (10, 10, 12, 10), strict=True)
        print(
            f"{s.name:12}{''.join(f'{text:>{width}}' for text, width in widths)}"
            f"{quartiles:>18}{len(s.iterations_s):5}{s.error:+8.1%}"
        )
    order = "right" if found.order_right else "wrong"
    bytes_equal = all(s.bytes_equal for s in found.strategies)
    print(
        f"worst {abs(found.worst.error):.1%}, order {order}, rank correlation {found.rank_correlation:.2f}, "
        f"bytes {'equal' if bytes_equal else 'differ'}",
        flush=True,
    )


if __name__ == "__main__":
    chosen = sys.argv[1:] or list(QUESTIONS)
    if not is_inside():
        sys.exit(run_inside([sys.executable, str(Path(__file__).resolve()), *chosen]))
    for name in chosen:
        for asked in QUESTIONS[name]:
            table(asked, stand_in=name == "stand-in")
