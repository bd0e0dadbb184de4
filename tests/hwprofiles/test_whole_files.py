"""Files appear whole or not at all, and what a killed process left goes with the next writing."""

import os
import signal
import subprocess
import sys

import pytest

from hwprofiles.whole_files import replacing

KILLED = """
import os, signal, sys
from pathlib import Path
from hwprofiles.whole_files import replacing
with replacing(Path(sys.argv[1])) as outer, replacing(outer) as inner:
    inner.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
WAITS = """
import sys
from pathlib import Path
from hwprofiles.whole_files import replacing
with replacing(Path(sys.argv[1])) as beside:
    beside.write_text("whole")
    print("open", flush=True)
    sys.stdin.readline()
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def interrupted(path):
    with replacing(path) as beside:
        beside.write_text("newer")
        raise KeyboardInterrupt


def test_a_file_appears_whole(tmp_path):
    with replacing(tmp_path / "plan.json") as beside:
        beside.write_text("new")
        assert beside.suffix == ".json"
        assert not (tmp_path / "plan.json").exists()
    assert names(tmp_path) == ["plan.json"]
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "plan.json")
    assert names(tmp_path) == ["plan.json"]
    assert (tmp_path / "plan.json").read_text() == "new"


def test_what_a_killed_process_left_is_swept_up(tmp_path):
    """Its own file only: names that look alike are somebody's."""
    kept = [".plan.1.json", ".plan.orrery-x.json", ".plans.orrery-1.json", "plan.orrery-1.json"]
    for name in kept:
        (tmp_path / name).touch()
    path = tmp_path / "plan.json"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == len(kept) + 2

    with replacing(path) as beside:
        assert names(tmp_path) == sorted([*kept, beside.name])
        beside.write_text("new")
    assert names(tmp_path) == sorted([*kept, "plan.json"])


def test_what_a_living_process_writes_stays(tmp_path):
    path = tmp_path / "plan.json"
    with subprocess.Popen(
        [sys.executable, "-c", WAITS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "open\n"
        with replacing(path) as beside:
            beside.write_text("new")
        assert path.read_text() == "new"
        other.communicate("\n", timeout=60)
    assert path.read_text() == "whole"
    assert names(tmp_path) == ["plan.json"]


def test_devices_and_pipes_are_written_to(tmp_path):
    """As root, a file would take the place of the device."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    with pytest.raises(OSError, match="No such device"), replacing(tmp_path / "pipe"):
        pass  # nobody reads it, and writing would wait for ever
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    for path in (tmp_path / "pipe", tmp_path / "link"):
        with replacing(path) as beside:
            assert beside == path
            beside.write_text("some")
    assert os.read(reader, 9) == b"some"
    os.close(reader)
    assert names(tmp_path) == ["link", "pipe"]
