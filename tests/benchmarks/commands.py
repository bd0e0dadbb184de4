"""Processor time of ``plan``, ``simulate`` and ``compare``: ``python tests/benchmarks/commands.py [--against FOLDER]``.

Each case is one command, run in a fresh process that has run the same command on a small network before, so that
neither imports nor kernels are part of it; the least of several processes counts.  ``start`` is a whole process, with
imports.  With ``--against``, the same cases run in another checkout too, turn by turn, and the table has the ratio.
What the commands answer (``--json``, and the plan file) is compared number by number: with ``--same``, which is for two
states that mean the same, any difference above 1e-12 ends in code 1; else the greatest is a column of the table.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BATCHES = {"p100-4x4": 512, "fdr-32x3": 3072}
SMALL = ("lenet5", "dgx1-p100", 64)
TOLERANCE = 1e-12
MEASURED = {"tables_s", "search_s", "engine_s"}
"""Fields that hold times of the program itself."""
RULES = ("data", "owt", "layerwise")
COMMANDS = (*(f"plan {rule}" for rule in RULES), *(f"simulate {rule}" for rule in RULES), "compare", "start")


def words_of(command: str, subject: tuple[str, str, int], folder: Path) -> list[str]:
    """Return the words of a command line; a plan lies in ``folder``."""
    name, _, strategy = command.partition(" ")
    model, cluster, batch = subject
    asked = [model, "--cluster", cluster, "--batch", str(batch)]
    file = str(folder / f"{model}-{strategy}.json")
    if name == "compare":
        return ["compare", *asked, "--out", str(folder / "page"), "--json"]
    if name == "simulate":
        return ["simulate", file, "--json"]
    return ["plan", *asked, "--strategy", strategy or "data", "--out", file, "--json"]


def run_here(commands: list[tuple[str, tuple[str, str, int]]], folder: Path) -> None:
    """Run commands in this process; print the processor time of the last one, after what it answers."""
    import gc
    import time

    from orrery.cli import app
    from orrery.terminal.exit_codes import run_app

    gc.set_threshold(50_000, 10, 10)  # as the program does
    for command, subject in commands:
        began_s = time.process_time()
        assert run_app(app, words_of(command, subject, folder)) == 0
        took_s = time.process_time() - began_s
    print(json.dumps({"took_s": took_s}))


def measure(checkout: Path, command: str, subject: tuple[str, str, int]) -> tuple[float, object]:
    """Return a command's seconds of processor time in a checkout, and what it answered."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "ORRERY_PROGRESS": "off"}
    with tempfile.TemporaryDirectory() as folder:
        if command == "start":
            words = [sys.executable, "-m", "orrery", *words_of("plan data", subject, Path(folder))]
            before = os.times()
            answer = subprocess.run(words, env=environment, cwd=folder, stdout=subprocess.PIPE, check=True).stdout
            after = os.times()
            took_s = sum(after[2:4]) - sum(before[2:4])
            return took_s, json.loads(answer)
        prepared = command.replace("simulate", "plan") if command.startswith("simulate") else command
        todo = [*((each, SMALL) for each in dict.fromkeys((prepared, command))), (command, subject)]
        if command != prepared:
            todo.insert(2, (prepared, subject))
        words = [sys.executable, __file__, "--here", folder, json.dumps(todo)]
        printed = subprocess.run(words, env=environment, cwd=folder, stdout=subprocess.PIPE, check=True).stdout
        values = list(documents(printed.decode()))
        plans = [json.loads(file.read_text()) for file in sorted(Path(folder).glob(f"{subject[0]}*.json"))]
        return values[-1]["took_s"], [values[-2], plans]


def documents(text: str):
    """Yield the JSON documents of a text."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        value, at = decoder.raw_decode(text, at)
        at += len(text[at:]) - len(text[at:].lstrip())
        yield value


def difference(one: object, other: object) -> float:
    """Return the greatest relative difference of two answers' numbers; infinity where they are not alike."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = (one.keys() | other.keys()) - MEASURED
        return max((difference(one.get(name), other.get(name)) for name in names), default=0.0)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return max((difference(*pair) for pair in zip(one, other, strict=True)), default=0.0)
    if isinstance(one, float) and isinstance(other, float) and one != other:
        return abs(one - other) / max(abs(one), abs(other))
    if isinstance(one, str) and isinstance(other, str) and (one.startswith("/") or other.startswith("/")):
        return 0.0  # paths of folders that are temporary
    return 0.0 if one == other else math.inf


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--here", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--same", action="store_true", help="fail where answers differ")
    parser.add_argument("--models", default="vgg16,inception-v3,resnet50")
    parser.add_argument("--clusters", default=",".join(BATCHES))
    parser.add_argument("--commands", default=",".join(COMMANDS))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.here:
        return run_here(json.loads(options.here[1]), Path(options.here[0]))
    checkouts = [Path(__file__).parents[2], *([options.against.resolve()] if options.against else [])]
    print(
        f"{'network':14}{'cluster':10}{'command':20}{'s':>8}"
        + f"{'other s':>10}{'ratio':>8}{'differ':>10}" * (len(checkouts) - 1)
    )
    worst = 0.0
    for model in options.models.split(","):
        for cluster in options.clusters.split(","):
            for command in options.commands.split(","):
                subject = (model, cluster, BATCHES[cluster])
                runs = [[measure(each, command, subject) for each in checkouts] for _ in range(options.repeats)]
                least_s = [min(run[i][0] for run in runs) for i in range(len(checkouts))]
                row = f"{model:14}{cluster:10}{command:20}{least_s[0]:8.3f}"
                if len(checkouts) == 2:
                    apart = max(difference(*(answer for _, answer in run)) for run in runs)
                    worst = max(worst, apart)
                    row += f"{least_s[1]:10.3f}{least_s[0] / least_s[1]:8.2f}{apart:10.1e}"
                print(row, flush=True)
    if options.same and not worst <= TOLERANCE:
        sys.exit(f"answers differ by {worst:.1e}")


if __name__ == "__main__":
    main()
