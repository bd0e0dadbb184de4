"""The promise that a run never hangs and never leaves a process: every case by really doing it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from executor.rendezvous.rank_environment import local_environment
from executor.supervision.diagnosis import Patience, RankFailure
from executor.supervision.status_board import RankState, StatusBoard
from executor.supervision.supervisor import supervise
from groundwork.errors import ConfigError

HERE = Path(__file__).parents[1]
RANK = [sys.executable, str(HERE / "small_rank.py")]
STALL_S, LONG_S = 1.0, 20.0
"""The silence after which a rank hangs, where one does; where none does, no busy machine makes it look so."""
TOLD_S = 30
"""Within which a failure must have ended the run; how soon it is seen, ``test_verdict`` checks on a made-up clock."""
WAIT_S = 40.0
"""For what must come, on a busy machine."""

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"),
]


def survivors(board):
    """Every process that has the board's path in its environment: ranks, their wrappers and their children."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if os.fsencode(board.path) in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.fixture
def run(tmp_path):
    """Supervise one rank a deed, and look for what is left."""

    def run(*deeds, wrapper=(), progress=None, log_folder=None, **patience):
        board = StatusBoard.create(tmp_path / "board", len(deeds))
        try:
            supervise(
                [[*wrapper, *RANK, *deed.split()] for deed in deeds],
                environments=[local_environment(rank, len(deeds), 29500, 1) for rank in range(len(deeds))],
                board=board,
                patience=Patience(**{"stall_s": LONG_S, **patience}),
                task_name=lambda task: f"name of {task}",
                progress=progress,
                log_folder=log_folder,
            )
        finally:
            assert survivors(board) == []
        return board

    return run


def test_returns_when_all_ranks_have_finished(run, tmp_path):
    """Progress is shown, what the ranks print is kept, and nothing is raised."""
    shown = []

    board = run("finish", "save 1.0", progress=shown.append, log_folder=tmp_path / "logs")

    assert [row.state for row in board.rows()] == [RankState.FINISHED] * 2
    assert {row.state for rows in shown for row in rows} >= {RankState.SAVING, RankState.FINISHED}
    assert (shown[-1][0].step, shown[-1][0].loss, shown[-1][0].samples_per_s) == (3, 0.5, 8.0)
    assert (tmp_path / "logs" / "rank-0.log").read_text() == "printed\n"


@pytest.mark.parametrize(
    ("deeds", "rank", "reason"),
    [
        (("work", "then-exit"), 1, "ended with exit code 3; last error line: no such layer"),
        (("work", "leave"), 1, "ended while computing, with exit code 0"),
        (("signal 9", "work"), 0, "killed by signal 9, which the system also sends when memory runs out"),
        (("signal 11", "work"), 0, r"killed by signal 11 \(Segmentation fault\)"),
        (("work", "fail 0"), 1, "ValueError: fail"),
        (("follow 0", "work", "then-fail 0.3"), 2, "ValueError: fail"),
        (("follow 0", "then-signal 9"), 1, "killed by signal 9, which the system also sends when memory runs out"),
        (("then-fail 0", "fail 0", "work"), 1, "ValueError: fail"),
        (
            ("work", "allocate"),
            1,
            "out of memory: ended with exit code 1; last error line: MemoryError",
        ),
        (("allocate-and-say", "work"), 0, r"out of memory: MemoryError\(\)"),
        (("work", "loop"), 1, r"hangs: no progress for (\d+) s while computing"),
        (("finish", "loop"), 1, r"hangs: no progress for (\d+) s while computing"),
        (("wait 1", "wait 2", "loop"), 2, r"hangs: no progress for (\d+) s while computing"),
        (("work", "signal 19"), 1, r"hangs: a signal has stopped it for (\d+) s"),
        (("wait 1", "wait 0"), None, r"hangs: has waited (\d+) s for rank [01], which waits for it in turn"),
        (("wait 1", "wait -1"), 1, r"hangs: has waited (\d+) s for a message or a collective"),
        (("finish", "wait 0"), 1, r"hangs: has waited (\d+) s for rank 0, which has finished"),
        (("finish", "finish-and-stay"), 1, "hangs: has finished but does not end"),
    ],
    ids=str,
)
def test_names_the_rank_to_blame(run, tmp_path, deeds, rank, reason):
    """The run ends in time, with rank, step, task and reason on one line, and with nothing left."""
    with pytest.raises(RankFailure) as caught:
        run(*deeds, stall_s=STALL_S if "hangs" in reason else LONG_S)

    ended_s, failure = time.monotonic(), caught.value
    begun_s = max(row.started_s for row in StatusBoard.open(tmp_path / "board").rows())
    task = ", task 7 (name of 7)" if failure.task == 7 else ""
    assert rank in (failure.rank, None)
    assert (found := re.search(reason, failure.reason))
    assert all(int(silent_s) >= STALL_S for silent_s in found.groups())
    assert (failure.step, failure.exit_code) == (3, 1)
    assert (failure.task == 7) is ("finish-and-stay" not in deeds)
    assert str(failure) == f"rank {failure.rank}, step 3{task}: {failure.reason}"
    assert "\n" not in str(failure)
    assert ended_s - begun_s < TOLD_S


def test_names_a_rank_that_does_not_start(run):
    """A time of its own is allowed for the start; other ranks may wait that long."""
    begun_s = time.monotonic()

    with pytest.raises(
        RankFailure, match=r"^rank 0, before the first step: hangs: no progress for \d+ s while starting$"
    ):
        run("never-start", "wait 0", stall_s=0.2, start_s=1.2)  # of two equals the first is named

    assert time.monotonic() - begun_s >= 1.2


def test_kills_what_does_not_listen_and_what_it_started(run, tmp_path):
    """A rank that ignores the request to end, and its child process, are gone after 2 s."""
    with pytest.raises(RankFailure, match="rank 1"):
        run("stubborn", "then-exit")

    ended_s = time.monotonic()
    assert 2 <= ended_s - max(row.started_s for row in StatusBoard.open(tmp_path / "board").rows()) < TOLD_S


def test_a_wrapper_does_not_hide_its_rank(run):
    """A rank below a shell is found stopped, and a shell's code for a killed child is read as the signal."""
    shell = ("sh", "-c", '"$@"; exit $?', "sh")

    with pytest.raises(RankFailure, match="hangs: a signal has stopped it"):
        run("signal 19", "work", wrapper=shell, stall_s=STALL_S)
    with pytest.raises(RankFailure, match="killed by signal 9"):
        run("signal 9", "work", wrapper=shell)


def test_a_command_that_does_not_exist_ends_those_before_it(tmp_path):
    """The system's error is passed on, and the ranks that run already are ended."""
    board = StatusBoard.create(tmp_path / "board", 2)

    with pytest.raises(FileNotFoundError, match="no-such-program"):
        supervise([[*RANK, "work"], ["no-such-program"]], environments=[{"RANK": "0"}] * 2, board=board)

    assert survivors(board) == []


def test_says_what_does_not_fit(tmp_path):
    """As many commands as rows, and times above zero."""
    board = StatusBoard.create(tmp_path / "board", 2)

    with pytest.raises(ConfigError, match="must be equally many, got 1, 2 and 2"):
        supervise([RANK], environments=[{}] * 2, board=board)
    with pytest.raises(ConfigError, match=r"stall_s must be finite and > 0 s, got 0\.0"):
        Patience(stall_s=0.0)


SUPERVISOR = """
import signal, sys
from pathlib import Path
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)  # who runs the tests may ignore them, as nohup does
signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
from executor.supervision.status_board import StatusBoard
from executor.supervision.supervisor import supervise
board = StatusBoard.open(Path(sys.argv[1]))
try:
    supervise([sys.argv[2:]] * 2, environments=[{"RANK": "0"}, {"RANK": "1"}], board=board)
except KeyboardInterrupt:
    sys.exit(130)
"""
NAMESPACES = ("unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc")
NETWORK = (
    *("unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-c"),
    'mount -t tmpfs none /run && mkdir /run/netns && ip netns add host && exec ip netns exec host "$@"',
    "sh",
)


@contextmanager
def supervised(tmp_path, deed, wrapper):
    """Start a supervisor of two ranks as a process of its own; once both ranks are at work it is the caller's."""
    board = StatusBoard.create(tmp_path / "board", 2)
    command = [sys.executable, "-c", SUPERVISOR, str(board.path), *wrapper, *RANK, deed]
    process = subprocess.Popen(command)
    try:
        deadline_s = time.monotonic() + WAIT_S
        while any(row.state == RankState.STARTING for row in board.rows()):
            assert process.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        assert len(survivors(board)) >= 2
        yield board, process
    finally:  # what a failed test left would keep the machine busy for ever
        process.kill()
        process.wait()


def state(thread):
    """The state of a thread, as a letter of ``ps``."""
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]


def wait_until_gone(board):
    """Fail if a process is left when the run must have ended."""
    deadline_s = time.monotonic() + TOLD_S
    while left := survivors(board):
        assert time.monotonic() < deadline_s, left
        time.sleep(0.01)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 130)])
def test_a_signal_to_the_supervisor_ends_all(tmp_path, number, code):
    """With nothing left; by the handler that the caller has, as for SIGTERM, or as ``KeyboardInterrupt``."""
    with supervised(tmp_path, "work", ()) as (board, process):
        process.send_signal(number)

        assert process.wait(WAIT_S) == code
        assert survivors(board) == []


@pytest.mark.parametrize(
    ("deed", "wrapper"),
    [("work", ()), ("loop", ()), ("hold", ()), ("stubborn", ()), ("stubborn", NAMESPACES), ("hold", NETWORK)],
    ids=["work", "loop", "hold", "stubborn", "stubborn-in-namespaces", "hold-in-ip-netns"],
)
def test_ranks_do_not_outlive_a_killed_supervisor(tmp_path, deed, wrapper):
    """No process is left, whatever the rank does and whatever stands between."""
    if wrapper and subprocess.run([*wrapper, "true"], capture_output=True).returncode:
        pytest.skip("the system refuses new namespaces to this user")
    with supervised(tmp_path, deed, wrapper) as (board, process):
        process.kill()
        process.wait()

    wait_until_gone(board)


def test_a_stopped_rank_does_not_outlive_a_killed_supervisor(tmp_path):
    """The system wakes it, because its group has lost its last tie to the session."""
    with supervised(tmp_path, "work", ()) as (board, process):
        stopped = board.rows()[0].pid
        os.kill(stopped, signal.SIGSTOP)
        while any(state(thread) != "T" for thread in Path(f"/proc/{stopped}/task").iterdir()):  # the last one counts
            time.sleep(0.01)

        process.kill()
        process.wait()

    wait_until_gone(board)


def test_ranks_behind_wrappers_are_ended_as_well(run):
    """A run in namespaces of its own ends by its first failure with nothing left."""
    if shutil.which("unshare") is None or subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode:
        pytest.skip("the system refuses new namespaces to this user")

    with pytest.raises(RankFailure, match=r"^rank 1, .*: ended with exit code 3; last error line: no such layer$"):
        run("work", "then-exit", wrapper=NAMESPACES)
