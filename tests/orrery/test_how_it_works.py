"""The page *How it works* is true: its drawings have every room, and commands enter rooms in the order of its walks."""

import re
import sys
from pathlib import Path

import pytest

from orrery.cli import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-it-works.md").read_text()
DRAWINGS = ROOT / "docs" / "drawings"
FLOORS = ("hwprofiles", "simulator", "planner", "studies", "executor", "reports", "orrery")
COMMANDS = {
    "plan": ["plan", "lenet5", "--cluster", "titanx-4", "--batch", "64", "--strategy", "owt", "--out", "plan.json"],
    "simulate": ["simulate", "plan.json"],
}


def rooms():
    """Every floor and room of the tree, with dots."""
    return {".".join(path.parent.relative_to(ROOT).parts) for f in FLOORS for path in (ROOT / f).rglob("__init__.py")}


def walk(command):
    """The (room, function) pairs of a walk's table."""
    table = PAGE.partition(f"<!-- walk: {command} -->")[2].partition("\n#")[0]
    return re.findall(r"^\| \d+ \| `([\w.]+)` \| `(\w+)` \|", table, re.MULTILINE)


def texts(drawing):
    """The words of a drawing."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", (DRAWINGS / drawing).read_text())


def calls_of(words):
    """The (room, function) pairs of all calls of a command, in order."""
    calls = []

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in FLOORS:
            calls.append((".".join(path.parent.relative_to(ROOT).parts), frame.f_code.co_name))

    sys.setprofile(note)
    try:
        app(words, standalone_mode=False)
    finally:
        sys.setprofile(None)
    return calls


def test_the_house_has_every_room():
    drawn = texts("house.svg")
    for room in rooms():
        floor, _, name = room.partition(".")
        assert (name or floor) in drawn, room


def test_every_room_that_the_page_names_is_there():
    named = set(re.findall(rf"`((?:{'|'.join(FLOORS)})(?:\.\w+)*)`", PAGE))
    assert named
    assert named <= rooms()


def test_commands_enter_rooms_in_the_order_of_the_walks(tmp_path, monkeypatch, capsys):
    """Each step of a walk is a call that comes after the call of the step before."""
    monkeypatch.chdir(tmp_path)
    for command, words in COMMANDS.items():
        calls = iter(calls_of(words))
        for step in walk(command):
            assert step in calls, f"{command}: {step} is not called, or not after the step before"
    capsys.readouterr()


@pytest.mark.parametrize(("command", "drawing"), [("plan", "walk-strategy.svg"), ("simulate", "walk-plan.svg")])
def test_the_drawing_of_a_walk_has_its_steps(command, drawing):
    """Rooms by their last names with their numbers, and functions, in order; few returns to a room."""
    steps, drawn = walk(command), texts(drawing)
    assert len(steps) >= 9
    assert [word for word in drawn if re.match(r"\d+ ", word)] == [
        f"{number}  {room.rpartition('.')[2]}" for number, (room, _) in enumerate(steps, 1)
    ]
    assert [word for word in drawn if word in {function for _, function in steps}] == [name for _, name in steps]
    entered = [room for room, _ in steps]
    assert max(entered.count(room) for room in entered) <= 2
