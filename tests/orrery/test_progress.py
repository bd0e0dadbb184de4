"""Progress goes to standard error: a bar on a terminal, elsewhere lines now and then, nothing of quick work."""

import io
import time

import pytest

import orrery.terminal.progress
from orrery.terminal.progress import progress_bar


class Terminal(io.StringIO):
    """Standard error that somebody looks at."""

    def isatty(self):
        """Say yes."""
        return True


class Pipe(io.StringIO):
    """Standard error that goes to a file."""


@pytest.fixture(autouse=True)
def on(monkeypatch):
    """Progress is on, as it is for users."""
    monkeypatch.delenv("ORRERY_PROGRESS", raising=False)


def waits_for(text):
    """Wait until standard error holds a text."""
    while text not in orrery.terminal.progress.sys.stderr.getvalue():
        time.sleep(0.01)


def test_no_progress_where_it_is_turned_off(capsys, monkeypatch):
    """Standard error stays empty, and the work is told that it need not report."""
    monkeypatch.setenv("ORRERY_PROGRESS", "off")
    with progress_bar("working") as progress:
        assert progress is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("stream", [Terminal, Pipe])
def test_quick_work_shows_nothing(monkeypatch, stream):
    """Work that ends before the patience does leaves standard error as it was."""
    monkeypatch.setattr("sys.stderr", stream())
    monkeypatch.setattr(orrery.terminal.progress, "_PATIENCE_S", 60.0)
    monkeypatch.setattr(orrery.terminal.progress, "_FIRST_LINE_S", 60.0)
    with progress_bar("working") as progress:
        progress("half", 1, 2)
    assert "half" not in orrery.terminal.progress.sys.stderr.getvalue()


def test_long_work_shows_its_label(monkeypatch):
    """A bar appears by itself, also before the work reports anything."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr(orrery.terminal.progress, "_PATIENCE_S", 0.0)
    with progress_bar("working") as progress:
        waits_for("working")
        progress("searching", 3, 4)
    assert "searching" in orrery.terminal.progress.sys.stderr.getvalue()


def test_long_work_says_lines_without_a_terminal(monkeypatch):
    """Lines come by themselves, each with what the work is at; none after its end."""
    monkeypatch.setattr("sys.stderr", Pipe())
    monkeypatch.setattr(orrery.terminal.progress, "_FIRST_LINE_S", 0.01)
    with progress_bar("working") as progress:
        waits_for("working\n")
        progress("searching", 3, 4)
        waits_for("searching, 3 of 4\n")
    lines = orrery.terminal.progress.sys.stderr.getvalue().splitlines()
    assert all(line.startswith("orrery: after ") for line in lines)
    time.sleep(0.05)
    assert orrery.terminal.progress.sys.stderr.getvalue().splitlines() == lines
