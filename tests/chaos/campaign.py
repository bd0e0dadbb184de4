"""Faults by the hundred while commands work: each command must end with a reason or go on, and leave nothing broken.

Run as ``python tests/chaos/campaign.py [SECONDS] [FIRST_SEED]`` from the repository; a case is told by its seed, and
``python tests/chaos/campaign.py --show SEED`` runs one and shows what it prints.
"""

import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from chaos.commands import COMMANDS, make_samples  # noqa: E402, as the path is set above
from chaos.faults import KINDS, ROOT, Fault  # noqa: E402
from chaos.keeper import Case, case_of, folder_of, outcome  # noqa: E402

NO_FAULT = Fault(kind="none", about="no fault", at=0, seed=0)


def preload() -> None:
    """Import what the commands need once, so that each is a fork."""
    import importlib
    import pkgutil

    for package in ("groundwork", "hwprofiles", "simulator", "planner", "studies", "reports", "orrery"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith(("__main__", "on_dask")):
                importlib.import_module(module.name)
    import executor.checkpoints.checkpoint
    import executor.run.plan_run  # noqa: F401


class Campaign:
    """Cases, one after another, and what came of them."""

    def __init__(self, folder: Path, commands: Iterable[str] = COMMANDS) -> None:
        """Prepare, and measure how long some of the commands take undisturbed."""
        self._samples, self.counts, self.failures = folder, Counter[tuple[str, str, str]](), list[str]()
        (folder / "new" / "out").mkdir(parents=True)
        make_samples(folder / "new")
        preload()
        gc.freeze()
        self._lengths_s = {name: self._undisturbed(name) for name in commands}
        print("undisturbed:", ", ".join(f"{name} {length_s:.1f} s" for name, length_s in self._lengths_s.items()))

    def _undisturbed(self, name: str) -> float:
        """Keep the outputs of an undisturbed command, and return its duration in seconds."""
        case = Case(seed=0, command=name, again=False, fault=NO_FAULT)
        ended = outcome(case, self._samples, 10.0, keep=self._samples / f"after-{name}")
        assert not ended.wrong, (name, ended.wrong, ended.said)
        return ended.duration_s

    def run(self, case: Case, *, show: bool = False) -> list[str]:
        """Run a case; returns what is wrong with its end."""
        if case.fault.needs_root and not ROOT:
            return []
        ended = outcome(case, self._samples, self._lengths_s.get(case.command, 1.0))
        case.fault.about = ended.about or case.fault.about
        if show:
            print(ended.said, f"code {ended.code} after {ended.duration_s:.1f} s", sep="\n")
        way = "failed" if ended.wrong else "good end" if ended.code == 0 else "reason" if ended.code > 0 else "killed"
        self.counts[case.fault.kind, case.command, way] += 1
        if ended.wrong:
            self.failures.append(f"{case}: {'; '.join(ended.wrong)}")
            print(self.failures[-1], flush=True)
        return ended.wrong


def table(counts: Counter[tuple[str, str, str]]) -> str:
    """Return the cases by kind of fault and command: all of them, and how they ended."""
    rows = ["fault         " + "".join(f"{name:>24}" for name in COMMANDS)]
    for kind in KINDS:
        cells = []
        for name in COMMANDS:
            good, reason, killed, failed = (
                counts[kind, name, way] for way in ("good end", "reason", "killed", "failed")
            )
            cells.append(
                f"{good + reason + killed + failed:4} = {good:3}+{reason:3}+{killed:2}"
                + (f" !{failed}" if failed else "   ")
            )
        rows.append(f"{kind:14}" + "".join(f"{cell:>24}" for cell in cells))
    return "\n".join(
        [*rows, "cases = went on to a good end + ended with a reason + killed by the signal sent, !failed"]
    )


def main(arguments: list[str]) -> int:
    """Run a campaign for a time, half of it in another process, or show one case."""
    with folder_of("chaos-") as base:
        if arguments[:1] == ["--show"]:
            case = case_of(int(arguments[1]))
            print(case)
            return 1 if Campaign(base, [case.command]).run(case, show=True) else 0
        seconds, first = (int(word) for word in (*arguments, *["600", "0"][len(arguments) :]))
        campaign, end_s = Campaign(base), time.monotonic() + seconds
        read, write = os.pipe()
        child = os.fork()
        seed = first + (child == 0)
        while time.monotonic() < end_s:
            campaign.run(case_of(seed))
            seed += 2
        if child == 0:
            rows = [[*key, count] for key, count in campaign.counts.items()]
            os.write(write, json.dumps(rows).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as file:
            for *key, count in json.load(file):
                campaign.counts[tuple(key)] += count
        os.waitpid(child, 0)
        failed = sum(count for key, count in campaign.counts.items() if key[2] == "failed")
        print(table(campaign.counts))
        print(f"{campaign.counts.total():,} faults in {seconds} s, {failed} failed, seeds from {first}")
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
