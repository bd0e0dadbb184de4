"""Small random changes of the code, each of which the tests of its folder should notice.

    python tests/mutants/campaign.py COUNT SEED [FILE...]

Each change, of an operator, a comparison, a number, a condition, or ``max`` for ``min``, is made in a copy of the tree,
where the tests that execute the changed line run until the first failure, the most telling and the quickest first.
Prints for each the test that noticed it, or the changed line if nothing did: that wants a test against an oracle, or a
word why it changes nothing.  Files are drawn by their number of places to change, of simulator, planner and executor
unless some are named.  What tests execute is kept in ``out/mutants``: where the code has changed since, remove it.
"""

import ast
import contextlib
import importlib
import math
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
from bisect import bisect
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, count, pairwise
from pathlib import Path

import pytest
from executed_lines import UNKNOWN, ExecutedLines, file_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("simulator", "planner", "executor")
TESTS = (*PACKAGES, "studies")
"""Folders of tests: studies check what the planner predicts against measurements."""
COMPILED = {"compiled", "inner", "kernel", "saved", "njit", "jit"}
"""Decorators of functions whose lines are not seen as they run."""
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
TESTED_S = 120
"""How long the tests of a change take at most."""
LONGEST_S, LONGEST_WAIT_S = 30, 900
"""A change that makes tests compute longer than before by this, or one of them wait so long, has been noticed."""
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
    statement: range
    """Lines of the statement that is changed, without the body of one that has one."""
    unseen: bool
    """True if it runs as the file is imported, or compiled: no test is seen to execute it."""


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

    def between(left: ast.expr, right: ast.expr) -> tuple[int, int, str, int] | None:
        assert left.end_lineno is not None
        assert left.end_col_offset is not None
        start, end = place(left.end_lineno, left.end_col_offset), place(right.lineno, right.col_offset)
        found = re.search(r"not\s+in|is\s+not|[^\s()]+", source[start:end])
        word = " ".join(found.group().split()) if found else ""
        if found is None or word not in OPERATORS:
            return None
        return start + found.start(), start + found.end(), OPERATORS[word], left.end_lineno

    for node, statement, unseen in _computing(tree):
        found: list[tuple[int, int, str, int] | None] = []
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
            found.append((start, end, repr(node.value + 1), node.lineno))
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            start = place(node.lineno, node.col_offset)
            found.append((start, start + len(str(node.value)), str(not node.value), node.lineno))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            start = place(node.lineno, node.col_offset)
            found.append((start, place(node.operand.lineno, node.operand.col_offset), "", node.lineno))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in NAMES:
                end = place(node.func.end_lineno or 0, node.func.end_col_offset or 0)
                found.append((end - len(name), end, NAMES[name], node.func.lineno))
        yield from (Change(path, *each, statement, unseen) for each in found if each is not None)


def _computing(
    tree: ast.AST, statement: range = range(0), unseen: bool = True
) -> Iterator[tuple[ast.AST, range, bool]]:
    """Yield the nodes that compute something: no annotations, no raised errors, no formatted texts.

    Each comes with the lines of its statement, and whether it runs where no test is seen.
    """
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
            lines, hidden = statement, unseen
            if isinstance(node, ast.stmt):
                body = getattr(node, "body", None)
                lines = range(node.lineno, max(node.lineno + 1, body[0].lineno if body else (node.end_lineno or 0) + 1))
            if name == "body" and isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                decorators = " ".join(map(ast.unparse, getattr(tree, "decorator_list", ())))
                hidden = not COMPILED.isdisjoint(re.findall(r"\w+", decorators))
            yield node, lines, hidden
            yield from _computing(node, lines, hidden)


class Telling:
    """Which tests may notice a change.

    Args:
        tree: Copy of the tree.
        executed: What tests execute there.
    """

    def __init__(self, tree: Path, executed: ExecutedLines) -> None:
        self._executed = executed
        self._code = {path: (tree / path).read_text() for path in _files(tree, PACKAGES)}
        self._tests = {str(path): (tree / path).read_text() for path in _files(tree, ("tests",))}

    def of_change(self, change: Change) -> list[str]:
        """Return the tests that execute the line, then the others of their files, which may share what they made.

        Those that import the file come first, then those of its folder, and the quick ones; no more than there is time.
        Of what is executed as it is imported or compiled, these are all that execute the file or one that imports it.
        """
        file = change.path.relative_to(ROOT)
        module = ".".join(file.with_suffix("").parts)
        lines = self._executed.of_file(file)
        found = set().union(*(lines.get(line, set()) for line in change.statement))
        if found == {UNKNOWN} or change.unseen:
            users = [file, *(path for path, text in self._code.items() if f"from {module} import" in text)]
            found = found.union(*(names for user in users for names in self._executed.of_file(user).values()))
        files, known = {file_of(name) for name in found}, self._executed.seconds
        near = {name for name in files if f"from {module} import" in self._tests.get(name, "")}

        def rank(name: str) -> tuple[bool, bool, bool, float]:
            far = Path(file_of(name)).parent.relative_to("tests") != file.parent
            return name not in found, file_of(name) not in near, far, known[name]

        ordered = sorted((name for name in known if file_of(name) in files and known[name] < TESTED_S), key=rank)
        total_s = list(accumulate(known[name] for name in ordered))
        return ordered[: bisect(total_s, TESTED_S)]


def _files(tree: Path, folders: Iterable[str]) -> list[Path]:
    """Return the modules of some folders of a tree."""
    return [path.relative_to(tree) for folder in folders for path in sorted((tree / folder).rglob("*.py"))]


def first_failure(copy: Path, tests: list[str], longest_s: float, left_out: Collection[str] = ()) -> str:
    """Run tests in a fork of this process, which has imported the libraries; return the first that fails, if any.

    They may compute for ``longest_s``.
    """
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.setsid()
        silent = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(silent, fd)
        os.chdir(copy)
        os.environ.update(PYTHONPATH=str(copy), NUMBA_CACHE_DIR=str(copy / ".numba"))
        sys.path[:] = [str(copy), *(path for path in sys.path if path not in (str(ROOT), str(Path(__file__).parent)))]
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(longest_s), math.ceil(longest_s)))
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


def noticed_by(
    change: Change, copy: Path, tests: list[str], longest_s: float, passing: set[str], failing: set[str]
) -> str:
    """Return the first of some tests that notices a change, or an empty text.

    A test that fails is run without the change too, once: those that ``fail`` all the same do not count.
    """
    while tests:
        with made(change, copy):
            failed = first_failure(copy, tests, longest_s, failing)
        if not failed or failed in passing or failed == "no end":
            return failed
        if not first_failure(copy, [failed], longest_s):
            passing.add(failed)
            return failed
        print(f"without any change {failed} fails", flush=True)
        failing.add(failed)
    return ""


def main(wanted: int, seed: int, *names: str) -> int:
    """Try some changes; return the number of those that nothing noticed."""
    files = [Path(name).resolve() for name in names] or [ROOT / path for path in _files(ROOT, PACKAGES)]
    every = [change for path in files for change in changes_of(path)]
    chosen = random.Random(seed).sample(every, min(len(every), 2 * wanted))
    print(f"{len(every)} changes of {len(files)} files; {wanted} of seed {seed}", flush=True)
    for name in LIBRARIES:
        importlib.import_module(name)
    noticed = unnoticed = 0
    passing: set[str] = set()
    failing: set[str] = set()
    kept = ROOT / "out" / "mutants"
    copy = kept / "tree"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".venv", ".git", "out", ".*cache"))
    tests_of_all = _files(copy, [f"tests/{each}" for each in TESTS])
    executed = ExecutedLines(copy, kept, [copy / path for path in tests_of_all if path.name.startswith("test_")])
    telling = Telling(copy, executed)
    for change in chosen:
        if noticed + unnoticed == wanted:
            break
        source = (copy / change.path.relative_to(ROOT)).read_text()
        try:
            compile(source[: change.start] + change.text + source[change.end :], change.path.name, "exec")
        except SyntaxError:
            continue
        begin = time.monotonic()
        tests = telling.of_change(change)
        longest_s = LONGEST_S + sum(executed.seconds[each] for each in tests)
        found = noticed_by(change, copy, tests, longest_s, passing, failing)
        noticed, unnoticed = noticed + bool(found), unnoticed + (not found)
        place = f"{change.path.relative_to(ROOT)}:{change.line}"
        what = f"{source[change.start : change.end].strip()!r} -> {change.text!r}"
        took_s = time.monotonic() - begin
        print(f"{'noticed' if found else 'unnoticed':9} {took_s:5.0f} s {len(tests):5} tests  {place}  {what}")
        print(f"          {found or source.splitlines()[change.line - 1].strip()}", flush=True)
    print(f"{noticed} of {noticed + unnoticed} noticed")
    return unnoticed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]) > 0)
