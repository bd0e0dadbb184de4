"""Small random changes of the code, each of which the tests of its folder should notice.

    python tests/mutants/campaign.py COUNT SEED [FILE...]

Each change, of an operator, a comparison, a number, a condition, or ``max`` for ``min``, is made in a copy of the tree,
where the tests of the folder that mirrors the file's run until the first failure, those that import the file first.
Prints for each the test that noticed it, or the changed line if nothing did: that wants a test against an oracle, or a
word why it changes nothing.  Files are drawn by their number of places to change, of simulator, planner and executor
unless some are named.
"""

import ast
import contextlib
import importlib
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("simulator", "planner", "executor")
OPERATORS = {
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
    "//": "*",
    "%": "*",
    "**": "*",
    "@": "*",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "in": "not in",
    "not in": "in",
    "is": "is not",
    "is not": "is",
    "and": "or",
    "or": "and",
    "&": "|",
    "|": "&",
    "<<": ">>",
    ">>": "<<",
    "^": "&",
}
NAMES = {"max": "min", "min": "max", "any": "all", "all": "any", "maximum": "minimum", "minimum": "maximum"}
LONGEST_S, LONGEST_WAIT_S = 300, 900
"""A change that makes tests compute so long, or one of them wait so long, has been noticed: cores may be busy."""
SECONDS = count(1)
"""Numbers that tell the times of changes apart."""
LIBRARIES = ("hypothesis", "numba.np.arraymath", "pandas", "safetensors.torch", "scipy.stats", "torch._dynamo")
"""What most tests import, which takes seconds of a core."""


@dataclass(frozen=True)
class Change:
    """Text to put in place of a piece of a file."""

    path: Path
    start: int
    end: int
    text: str
    line: int


def changes_of(path: Path) -> Iterator[Change]:
    """Yield every change of a file; those of annotations, texts and messages are none."""
    source = path.read_text()
    tree = ast.parse(source)
    starts = [0]
    for row in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))
    lines = source.splitlines(keepends=True)

    def place(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def change(start: int, end: int, text: str, line: int) -> Change:
        return Change(path, start, end, text, line)

    def between(left: ast.expr, right: ast.expr) -> Change | None:
        assert left.end_lineno is not None
        assert left.end_col_offset is not None
        start, end = place(left.end_lineno, left.end_col_offset), place(right.lineno, right.col_offset)
        found = re.search(r"not\s+in|is\s+not|[^\s()]+", source[start:end])
        word = " ".join(found.group().split()) if found else ""
        if found is None or word not in OPERATORS:
            return None
        return change(start + found.start(), start + found.end(), OPERATORS[word], left.end_lineno)

    for node in _computing(tree):
        found: list[Change | None] = []
        if isinstance(node, ast.BinOp):
            found.append(between(node.left, node.right))
        elif isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            found += [between(a, b) for a, b in pairwise(operands)]
        elif isinstance(node, ast.BoolOp):
            found += [between(a, b) for a, b in pairwise(node.values)]
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            start = place(node.lineno, node.col_offset)
            end = place(node.lineno, node.end_col_offset or 0)
            found.append(change(start, end, repr(node.value + 1), node.lineno))
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            start = place(node.lineno, node.col_offset)
            found.append(change(start, start + len(str(node.value)), str(not node.value), node.lineno))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            start = place(node.lineno, node.col_offset)
            found.append(change(start, place(node.operand.lineno, node.operand.col_offset), "", node.lineno))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in NAMES:
                end = place(node.func.end_lineno or 0, node.func.end_col_offset or 0)
                found.append(change(end - len(name), end, NAMES[name], node.func.lineno))
        yield from (each for each in found if each is not None)


def _computing(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that compute something: no annotations, no raised errors, no formatted texts."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
                continue
            if isinstance(node, ast.AnnAssign) and node.value is None:
                continue
            if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: only after another defect
                continue
            yield node
            yield from _computing(node)


def tests_of(path: Path, copy: Path) -> list[list[str]]:
    """Return the files of tests of the folder that mirrors the folder of a file, or of the nearest one above it.

    Files that import what is changed come first, which is most telling, and the others after them.
    """
    folder = copy / "tests" / path.parent.relative_to(ROOT)
    while not any(folder.glob("test_*.py")) and folder.parent != copy / "tests":
        folder = folder.parent
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    files = sorted(folder.rglob("test_*.py"), key=lambda file: (path.stem not in file.stem, file.stat().st_size))
    near = [file for file in files if f"from {module} import" in file.read_text()]
    far = [file for file in files if file not in near]
    return [[str(file.relative_to(copy)) for file in each] for each in (near, far)]


def first_failure(copy: Path, tests: list[str], left_out: Collection[str] = ()) -> str:
    """Run tests in a fork of this process, which has imported the libraries; return the first that fails, if any."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.setsid()
        silent = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(silent, fd)
        os.chdir(copy)
        os.environ.update(PYTHONPATH=str(copy), NUMBA_CACHE_DIR=str(copy / ".numba"))
        sys.path[:] = [str(copy), *(path for path in sys.path if path not in (str(ROOT), str(Path(__file__).parent)))]
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S, LONGEST_S))
        run = Run()
        words = [word for name in left_out for word in ("--deselect", name)]
        try:
            code = pytest.main(
                ["-x", "-q", "-p", "no:cacheprovider", f"--timeout={LONGEST_WAIT_S}", *words, *tests], plugins=[run]
            )
            assert run.failed or code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), f"pytest says {code}"
            os.write(writing, f"end\n{run.failed}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as file:
        ended, _, failed = file.read().partition("\n")
    os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return failed if ended else "no end"


class Run:
    """Plug-in of pytest that notes the first test that fails, or file that cannot be imported."""

    failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test."""
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file."""
        if report.failed:
            self.failed = self.failed or report.nodeid


@contextlib.contextmanager
def made(change: Change, copy: Path) -> Iterator[None]:
    """Make a change in the copy meanwhile.

    The file's time is then that of no other text of it, as caches of compiled code tell texts by time and length.
    """
    file = copy / change.path.relative_to(ROOT)
    before, original_s, changed_s = file.read_text(), file.stat().st_mtime, time.time() + next(SECONDS)
    file.write_text(before[: change.start] + change.text + before[change.end :])
    os.utime(file, (changed_s, changed_s))
    try:
        yield
    finally:
        file.write_text(before)
        os.utime(file, (original_s, original_s))


def noticed_by(change: Change, copy: Path, passing: set[str], failing: set[str]) -> str:
    """Return the first test of its folder that notices a change, or an empty text.

    A test that fails is run without the change too, once: those that ``fail`` all the same do not count.
    """
    for tests in tests_of(change.path, copy):
        while tests:
            with made(change, copy):
                failed = first_failure(copy, tests, failing)
            if not failed or failed in passing or failed == "no end":
                break
            if not first_failure(copy, [failed]):
                passing.add(failed)
                break
            print(f"without any change {failed} fails", flush=True)
            failing.add(failed)
        else:
            continue
        if failed:
            return failed
    return ""


def main(wanted: int, seed: int, *names: str) -> int:
    """Try some changes; return the number of those that nothing noticed."""
    files = [Path(name).resolve() for name in names] or [
        path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
    ]
    every = [change for path in files for change in changes_of(path)]
    chosen = random.Random(seed).sample(every, min(len(every), 2 * wanted))
    print(f"{len(every)} changes of {len(files)} files; {wanted} of seed {seed}", flush=True)
    for name in LIBRARIES:
        importlib.import_module(name)
    noticed = unnoticed = 0
    passing: set[str] = set()
    failing: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".venv", ".git", "out", "__pycache__", ".*cache"))
        for change in chosen:
            if noticed + unnoticed == wanted:
                break
            source = (copy / change.path.relative_to(ROOT)).read_text()
            try:
                compile(source[: change.start] + change.text + source[change.end :], change.path.name, "exec")
            except SyntaxError:
                continue
            begin = time.monotonic()
            found = noticed_by(change, copy, passing, failing)
            noticed, unnoticed = noticed + bool(found), unnoticed + (not found)
            place = f"{change.path.relative_to(ROOT)}:{change.line}"
            what = f"{source[change.start : change.end].strip()!r} -> {change.text!r}"
            took_s = time.monotonic() - begin
            print(f"{'noticed' if found else 'unnoticed':9} {took_s:5.0f} s  {place}  {what}")
            print(f"          {found or source.splitlines()[change.line - 1].strip()}", flush=True)
    print(f"{noticed} of {noticed + unnoticed} noticed")
    return unnoticed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]) > 0)
