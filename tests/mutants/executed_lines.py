"""Which tests execute which lines, and how long each takes: a plug-in of pytest that notes it, and what reads it.

Processes that tests start are measured too, where they inherit the name of the test in their environment.
"""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import coverage
import pytest

SETTINGS = """
[run]
include = {tree}/simulator/*, {tree}/planner/*, {tree}/executor/*
context = ${{PYTEST_CURRENT_TEST}}
data_file = {kept}/lines
parallel = true
patch = _exit
disable_warnings = no-data-collected, module-not-measured
"""
UNKNOWN = ""
"""Stands for what is executed while no test is known: imports, and servers that outlive a test."""


def file_of(test: str) -> str:
    """Return the file of a test."""
    return test.partition("::")[0]


class ExecutedLines:
    """What one run of some tests executed in a tree, kept in a folder.

    Test files that are newer than what is kept are run first, all of them at the first time.

    Args:
        tree: Root of the code that tests run.
        kept: Folder of what was measured before.
        tests: Test files.
    """

    def __init__(self, tree: Path, kept: Path, tests: list[Path]) -> None:
        self.tree, times = tree, kept / "seconds.json"
        seconds: dict[str, float] = json.loads(times.read_text()) if times.exists() else {}
        known = {file_of(name) for name in seconds}
        names = {str(file.relative_to(tree)): file.stat().st_mtime for file in tests}
        if newer := [name for name, at_s in names.items() if name not in known or at_s > times.stat().st_mtime]:
            times.write_text(json.dumps({name: s for name, s in seconds.items() if file_of(name) not in newer}))
            print(f"noting what {len(newer)} files of tests execute", flush=True)
            settings = kept / "settings"
            settings.write_text(SETTINGS.format(tree=tree, kept=kept))
            path = os.pathsep.join([str(tree), str(Path(__file__).parent)])
            new = {**os.environ, "COVERAGE_PROCESS_START": str(settings), "PYTHONPATH": path, "SECONDS": str(times)}
            words = ["-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "executed_lines", "--no-header"]
            with (kept / "output").open("w") as output:
                subprocess.run(
                    [sys.executable, *words, *newer], cwd=tree, env=new, stdout=output, stderr=output, check=False
                )
            words = ["-m", "coverage", "combine", "--append", "--quiet", f"--rcfile={settings}"]
            subprocess.run([sys.executable, *words], cwd=kept, check=True)
        self.seconds = {name: s for name, s in json.loads(times.read_text()).items() if file_of(name) in names}
        """Time of each test; infinite of those that fail or are skipped here."""
        self._data = coverage.CoverageData(str(kept / "lines"))
        self._data.read()

    @functools.lru_cache(maxsize=64)  # noqa: B019
    def of_file(self, file: Path) -> dict[int, set[str]]:
        """Return the tests that execute each line of a file of the tree, ``UNKNOWN`` among them."""
        return {
            line: {re.sub(r" \((setup|call|teardown)\)$", "", name) for name in names}
            for line, names in self._data.contexts_by_lineno(str(self.tree / file)).items()
        }


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note the test that begins; a file starts with empty caches, so that what it executes is all that it needs."""
    if (measured := coverage.Coverage.current()) is not None:
        if file_of(nodeid) != _file[0]:
            _file[0] = file_of(nodeid)
            for name, module in list(sys.modules.items()):
                if name.partition(".")[0] in ("simulator", "planner", "executor", "studies"):
                    for each in vars(module).values():
                        if hasattr(each, "cache_clear"):
                            each.cache_clear()
        measured.switch_context(nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the time of a test, or that it does not pass here."""
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + (report.duration if report.passed else float("inf"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Save what is known by now."""
    if not hasattr(session.config, "workerinput"):
        file = Path(os.environ["SECONDS"])
        file.write_text(json.dumps({**json.loads(file.read_text()), **_seconds}))
    elif (measured := coverage.Coverage.current()) is not None:
        measured.save()


_file = [""]
_seconds: dict[str, float] = {}
