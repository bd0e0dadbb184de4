"""Files appear whole or not at all, whoever writes them, and what a killed process left goes with the next writing."""

import os
import signal
import subprocess
import sys

import pytest

from groundwork.whole_files import replacing

KILLED = """
import os, signal, sys
from pathlib import Path
from groundwork.whole_files import replacing
with replacing(Path(sys.argv[1])) as outer, replacing(outer) as inner:
    inner.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
WAITS = """
import sys
from pathlib import Path
from groundwork.whole_files import replacing
with replacing(Path(sys.argv[1])) as beside:
    beside.write_text("whole")
    print("open", flush=True)
    sys.stdin.readline()
"""

MANY = """
import sys, threading
from pathlib import Path
from groundwork.whole_files import replacing
def write(letter):
    for _ in range(int(sys.argv[2])):
        with replacing(Path(sys.argv[1])) as outer, replacing(outer) as inner:
            assert inner.read_text() == ""
            with inner.open("w") as file:
                for _ in range(8):
                    file.write(letter * 1000)
                    file.flush()
writers = [threading.Thread(target=write, args=(letter,)) for letter in sys.argv[3]]
[each.start() for each in writers]
[each.join() for each in writers]
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
    """By the next writing in that folder; names that look alike are somebody's."""
    kept = [".orrery-1", ".orrery-0123456789ABCDEF", "orrery-0123456789abcdef"]
    for name in kept:
        (tmp_path / name).mkdir()
    path = tmp_path / "plan.json"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    (tmp_path / ".orrery-0123456789abcdef").mkdir()  # of one that was killed before it had a lock
    assert len(names(tmp_path)) == len(kept) + 2

    with replacing(tmp_path / "other.json") as beside:
        assert names(tmp_path) == sorted([*kept, beside.parent.name])
        beside.write_text("new")
    assert names(tmp_path) == sorted([*kept, "other.json"])


@pytest.mark.parametrize("name", ["x" * 255, "lock"])
def test_many_writers_leave_a_whole_file_at_every_moment(tmp_path, name):
    """Eight threads in two processes write at once: nobody fails, and every reader sees what one of them wrote."""
    path, seen = tmp_path / name, set()
    path.write_text("0" * 8000)
    others = [
        subprocess.Popen([sys.executable, "-c", MANY, str(path), "25", text], stderr=subprocess.PIPE, text=True)
        for text in ("ABCD", "EFGH")
    ]
    while any(each.poll() is None for each in others):
        seen.add(path.read_text())
    assert [(each.communicate()[1], each.returncode) for each in others] == [("", 0)] * 2
    assert seen <= {letter * 8000 for letter in "0ABCDEFGH"}
    assert len(seen) > 2
    assert names(tmp_path) == [name]


def test_killed_writers_leave_the_whole_file(tmp_path):
    """Killed in the middle, again and again, while others write on."""
    path = tmp_path / "plan.json"
    path.write_text("0" * 8000)
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", MANY, str(path), "9999", "AB"]) as other:
            while path.read_text()[0] not in "AB":
                pass
            with replacing(path) as beside:
                beside.write_text("0" * 8000)
            other.kill()
        assert path.read_text() in {letter * 8000 for letter in "0AB"}
    with replacing(path) as beside:
        beside.write_text("whole")
    assert names(tmp_path) == ["plan.json"]


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


def test_devices_and_pipes_are_written_to(tmp_path, null_device):
    """As root, a file would take the place of the device."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(null_device)
    with pytest.raises(OSError, match="No such device"), replacing(tmp_path / "pipe"):
        pass  # nobody reads it, and writing would wait for ever
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    for path in (tmp_path / "pipe", tmp_path / "link"):
        with replacing(path) as beside:
            assert beside == path
            beside.write_text("some")
    assert os.read(reader, 9) == b"some"
    os.close(reader)
    assert null_device.is_char_device()
    assert names(tmp_path) == ["link", "pipe"]
