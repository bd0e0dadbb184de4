"""Small random changes of the code, each of which the tests of its folder should notice.

    python tests/mutants/campaign.py COUNT SEED [FILE...]

Each change, of an operator, a comparison, a number, a condition, or ``max`` for ``min``, is made in a copy of the tree,
where the tests of the folder that mirrors the file's run until the first failure.  Prints one line for each, and the
changed line of those that nothing noticed: they want a test against an oracle, or a word why they change nothing.
Files are drawn by their number of places to change, of simulator, planner and executor unless some are named.
"""

import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

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
TIMEOUT_S = 240.0
"""A change that makes the tests take so long has been noticed."""


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
    starts = [0]
    for row in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))
    lines = source.splitlines(keepends=True)

    def place(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def between(left: ast.expr, right: ast.expr) -> Change | None:
        assert left.end_lineno is not None
        assert left.end_col_offset is not None
        start, end = place(left.end_lineno, left.end_col_offset), place(right.lineno, right.col_offset)
        found = re.search(r"not\s+in|is\s+not|[^\s()]+", source[start:end])
        word = " ".join(found.group().split()) if found else ""
        if found is None or word not in OPERATORS:
            return None
        return Change(path, start + found.start(), start + found.end(), OPERATORS[word], left.end_lineno)

    for node in _computing(ast.parse(source)):
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
            found.append(Change(path, start, end, repr(node.value + 1), node.lineno))
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            start = place(node.lineno, node.col_offset)
            found.append(Change(path, start, start + len(str(node.value)), str(not node.value), node.lineno))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            start = place(node.lineno, node.col_offset)
            found.append(Change(path, start, place(node.operand.lineno, node.operand.col_offset), "", node.lineno))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in NAMES:
                end = place(node.func.end_lineno or 0, node.func.end_col_offset or 0)
                found.append(Change(path, end - len(name), end, NAMES[name], node.func.lineno))
        yield from (change for change in found if change is not None)


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
            yield node
            yield from _computing(node)


def tests_of(path: Path) -> Path:
    """Return the folder of tests that mirrors the folder of a file, or the nearest one above it."""
    folder = ROOT / "tests" / path.parent.relative_to(ROOT)
    while not any(folder.glob("test_*.py")) and folder.parent != ROOT / "tests":
        folder = folder.parent
    return folder


def tried(change: Change, copy: Path) -> str:
    """Make a change in the copy, run the tests of its folder, take it back, and return what was noticed."""
    file = copy / change.path.relative_to(ROOT)
    before = file.read_text()
    after = before[: change.start] + change.text + before[change.end :]
    try:
        compile(after, file.name, "exec")
    except SyntaxError:
        return "no code"
    file.write_text(after)
    tests = copy / tests_of(change.path).relative_to(ROOT)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", "2", str(tests)]
    environment = {**os.environ, "PYTHONPATH": str(copy), "NUMBA_CACHE_DIR": str(copy / ".numba")}
    with subprocess.Popen(
        command, cwd=copy, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            code = process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            code = None
    file.write_text(before)
    return "unnoticed" if code == 0 else "noticed"


def main(count: int, seed: int, *names: str) -> int:
    """Try some changes; return the number of those that nothing noticed."""
    files = [Path(name).resolve() for name in names] or [
        path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
    ]
    every = [change for path in files for change in changes_of(path)]
    chosen = random.Random(seed).sample(every, min(len(every), 2 * count))
    print(f"{len(every)} changes of {len(files)} files; {count} of seed {seed}")
    counts = {"noticed": 0, "unnoticed": 0}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".venv", ".git", "out", "__pycache__", ".*cache"))
        for change in chosen:
            if sum(counts.values()) == count:
                break
            begin = time.monotonic()
            found = tried(change, copy)
            if found == "no code":
                continue
            counts[found] += 1
            source = change.path.read_text()
            line = source.splitlines()[change.line - 1].strip()
            what = f"{source[change.start : change.end].strip()!r} -> {change.text!r}"
            print(
                f"{found:9} {time.monotonic() - begin:5.0f} s  {change.path.relative_to(ROOT)}:{change.line}  {what}",
                flush=True,
            )
            if found == "unnoticed":
                print(f"          {line}", flush=True)
    print(f"{counts['noticed']} of {sum(counts.values())} noticed")
    return counts["unnoticed"]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]) > 0)
