"""Compressed strategies in a network-bound lab against their simulation, and what compression brings there.

Run as ``python tests/benchmarks/lab_compression.py [--stand-in-compression] [QUESTION ...]`` (Linux).  It prints a
table for each question, at first and by default ``stand-in`` (two to three minutes): four hosts at 200 Mbit/s, waits of
the predicted length for arithmetic.  Messages are really compressed, sent and decompressed on this machine and
predicted by samples of the same data types; with ``--stand-in-compression`` waits stand in for that as well, which
tells the network from the cores that all ranks share.  ``arithmetic``: real arithmetic too, with more ranks than cores.
The machine should have nothing else to do.

Measured on two cores, ``vgg11-cifar``, batch 64, ``ps-spread``, waits for computation (predicted, then measured):

==================  ====  ============================  ==========================  ==========================
compression         load  32 bits                       ``dynamic-tree``            speedup
==================  ====  ============================  ==========================  ==========================
real                1     2433 ms, 2536 ms (-4.0 %)     654 ms, 692 ms (-5.4 %)     3.72, 3.67
waits               8     2433 ms, 2584 ms (-5.8 %)     648 ms, 690 ms (-6.0 %)     3.75, 3.75
real                10    2433 ms, 2721 ms (-10.6 %)    659 ms, 839 ms (-21.5 %)    3.69, 3.24
real                17    2433 ms, 2610 ms (-6.8 %)     655 ms, 745 ms (-12.0 %)    3.71, 3.51
==================  ====  ============================  ==========================  ==========================

``linear`` at load 17 took 795 ms (-17.6 %), ``dynamic-tree`` at load 27 800 ms (-17.5 %): beside other programs real
compression takes longer, because four ranks compress on two busy cores.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from executor.lab.inside import is_inside, lab_hosts, run_inside
from executor.validation.validation_request import ValidationRequest
from executor.validation.validation_run import validate
from hwprofiles.catalogue.cluster_catalogue import load_cluster


@dataclass(frozen=True)
class Question:
    model: str
    batch: int
    lab: str
    types: tuple[str, ...] = ("dynamic-tree",)
    gradient_sync: str = "ps-spread"
    stand_in: bool = True


QUESTIONS = {
    "stand-in": Question("vgg11-cifar", 64, "lab-4"),
    "types": Question("vgg11-cifar", 64, "lab-4", ("linear", "one-bit")),
    "ring": Question("vgg11-cifar", 64, "lab-4", gradient_sync="ring"),
    "racks": Question("vgg11-cifar", 64, "lab-2x2"),
    "arithmetic": Question("vgg11-cifar", 32, "lab-4", stand_in=False),
}


def table(question, *, real_compression):
    """Validate and print; one row a strategy."""
    cluster = load_cluster(question.lab)
    stand_in_compression = question.stand_in and not real_compression
    request = ValidationRequest(
        batch=question.batch,
        strategies=("data",),
        processes=len(cluster.devices),
        cluster=question.lab,
        gradient_sync=question.gradient_sync,
        compress_gradients=tuple(question.types),
        rounds=6,
        budget_s=60.0,
        stand_in_compute=question.stand_in,
        stand_in_compression=stand_in_compression,
        device="cpu",
    )
    with lab_hosts(cluster) as hosts:
        found = validate(question.model, request, hosts=hosts)
    loads = " to ".join(found.environment[f"load average {when}"] for when in ("before", "after"))
    what = "waits for arithmetic" if question.stand_in else "real arithmetic"
    what += " and codes" if stand_in_compression or not question.stand_in else ", real codes"
    print(f"\n{question.model}, batch {question.batch}, {question.lab}, {question.gradient_sync}, {what}; load {loads}")
    print(f"{'':24}{'predicted ms':>14}{'measured ms':>13}{'quartiles':>20}{'n':>5}{'error':>8}")
    for s in found.strategies:
        quartiles = " to ".join(f"{1e3 * value:.1f}" for value in s.quartiles_s)
        print(
            f"{s.name:24}{1e3 * s.predicted_s:>14.1f}{1e3 * s.measured_s:>13.1f}{quartiles:>20}"
            f"{len(s.iterations_s):5}{s.error:+8.1%}"
        )
    for row in found.speedups:
        print(f"{row.name} over {row.plain}: {row.predicted:.2f} predicted, {row.measured:.2f} measured")
    print(f"bytes {'equal' if all(s.bytes_equal for s in found.strategies) else 'differ'}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=f"of {', '.join(QUESTIONS)}")
    parser.add_argument("--stand-in-compression", action="store_true", help="wait instead of encoding and decoding")
    given = parser.parse_args()
    unknown = [name for name in given.questions if name not in QUESTIONS]
    if unknown:
        parser.error(f"question must be of {', '.join(QUESTIONS)}, got {unknown[0]}")
    if not is_inside():
        sys.exit(run_inside([sys.executable, str(Path(__file__).resolve()), *sys.argv[1:]]))
    for name in given.questions or ["stand-in"]:
        table(QUESTIONS[name], real_compression=not given.stand_in_compression)
