"""Progress goes to a terminal on standard error, after a second, and nowhere else."""

import io
import time

import orrery.terminal.progress
from orrery.terminal.progress import progress_bar


class Terminal(io.StringIO):
    """Standard error that somebody looks at."""

    def isatty(self):
        """Say yes."""
        return True


def test_no_bar_without_a_terminal(capsys):
    """Standard error stays empty, and the work is told that it need not report."""
    with progress_bar("working") as progress:
        assert progress is None
    assert capsys.readouterr().err == ""


def test_quick_work_shows_nothing(monkeypatch):
    """Work that ends before the patience does leaves the terminal as it was."""
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr(orrery.terminal.progress, "_PATIENCE_S", 60.0)
    with progress_bar("working") as progress:
        progress("half", 1, 2)
    assert "half" not in orrery.terminal.progress.sys.stderr.getvalue()


def test_long_work_shows_its_label(monkeypatch):
    """A bar appears by itself, also before the work reports anything."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr(orrery.terminal.progress, "_PATIENCE_S", 0.0)
    with progress_bar("working") as progress:
        while "working" not in orrery.terminal.progress.sys.stderr.getvalue():
            time.sleep(0.01)
        progress("searching", 3, 4)
    assert "searching" in orrery.terminal.progress.sys.stderr.getvalue()
