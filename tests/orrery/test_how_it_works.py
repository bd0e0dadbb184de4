"""The page *How it works* is true: drawings have every subpackage, commands enter them in the order of its walks."""

import re
import sys
from pathlib import Path

import pytest

from orrery.cli import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-it-works.md").read_text()
DRAWINGS = ROOT / "docs" / "drawings"
PACKAGES = ("groundwork", "hwprofiles", "simulator", "planner", "studies", "executor", "reports", "orrery")
COMMANDS = {
    "plan": ["plan", "lenet5", "--cluster", "titanx-4", "--batch", "64", "--strategy", "owt", "--out", "plan.json"],
    "simulate": ["simulate", "plan.json"],
}


def packages():
    """Every package and subpackage of the tree, with dots."""
    return {
        ".".join(path.parent.relative_to(ROOT).parts) for top in PACKAGES for path in (ROOT / top).rglob("__init__.py")
    }


def walk(command):
    """The (package, function) pairs of a walk's table."""
    table = PAGE.partition(f"<!-- walk: {command} -->")[2].partition("\n#")[0]
    return re.findall(r"^\| \d+ \| `([\w.]+)` \| `(\w+)` \|", table, re.MULTILINE)


def texts(drawing):
    """The words of a drawing."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", (DRAWINGS / drawing).read_text())


def calls_of(words):
    """The (package, function) pairs of all calls of a command, in order."""
    calls = []

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES:
            calls.append((".".join(path.parent.relative_to(ROOT).parts), frame.f_code.co_name))

    sys.setprofile(note)
    try:
        app(words, standalone_mode=False)
    finally:
        sys.setprofile(None)
    return calls


def test_the_drawing_has_every_package():
    drawn = texts("packages.svg")
    for package in packages():
        top, _, name = package.partition(".")
        assert (name or top) in drawn, package


def test_every_package_that_the_page_names_is_there():
    named = set(re.findall(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)*)`", PAGE))
    assert named
    assert named <= packages()


def test_commands_enter_packages_in_the_order_of_the_walks(tmp_path, monkeypatch, capsys):
    """Each step of a walk is a call that comes after the call of the step before."""
    monkeypatch.chdir(tmp_path)
    for command, words in COMMANDS.items():
        calls = iter(calls_of(words))
        for step in walk(command):
            assert step in calls, f"{command}: {step} is not called, or not after the step before"
    capsys.readouterr()


@pytest.mark.parametrize(("command", "drawing"), [("plan", "walk-strategy.svg"), ("simulate", "walk-plan.svg")])
def test_the_drawing_of_a_walk_has_its_steps(command, drawing):
    """Subpackages by their last names with their numbers, and functions, in order; few returns to one."""
    steps, drawn = walk(command), texts(drawing)
    assert len(steps) >= 9
    assert [word for word in drawn if re.match(r"\d+ ", word)] == [
        f"{number}  {package.rpartition('.')[2]}" for number, (package, _) in enumerate(steps, 1)
    ]
    assert [word for word in drawn if word in {function for _, function in steps}] == [name for _, name in steps]
    entered = [package for package, _ in steps]
    assert max(entered.count(package) for package in entered) <= 2
