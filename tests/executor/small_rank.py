"""A rank without torch that does what its first argument says, for the tests of the supervisor."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from executor.supervision.lifeline import end_with_supervisor
from executor.supervision.status_board import BOARD_VARIABLE, RankRow, RankState, StatusBoard, own_status

FOREVER_S = 600.0
TASK = 7
AT_WORK = 2
"""More than this shows a rank that does what it was told."""


def until_all(met: Callable[[RankRow], bool]) -> None:
    """Wait for the other ranks, whose start takes as long as the machine is busy."""
    board = StatusBoard.open(Path(os.environ[BOARD_VARIABLE]))
    while not all(met(row) for rank, row in enumerate(board.rows()) if rank != int(os.environ["RANK"])):
        time.sleep(0.01)


def main(deed: str, *arguments: str) -> None:
    end_with_supervisor()
    if deed == "never-start":
        time.sleep(FOREVER_S)
    status = own_status(int(os.environ["RANK"]))
    status.step(3, loss=0.5, samples_per_s=8.0)
    status.at(TASK, RankState.COMPUTING)
    if deed.startswith("then-"):
        until_all(lambda row: row.state == RankState.FAILED or row.progress > AT_WORK)
    match deed.removeprefix("then-"):
        case "finish":
            print("printed", flush=True)
            status.at(-1, RankState.FINISHED)
            os._exit(0)  # at once, as the ranks of a run
        case "finish-as-interpreters-do":
            status.at(-1, RankState.FINISHED)
        case "leave":
            pass
        case "finish-and-stay":
            status.at(-1, RankState.FINISHED)
            time.sleep(FOREVER_S)
        case "work":
            while True:
                status.at(TASK, RankState.COMPUTING)
                time.sleep(0.01)
        case "exit":
            print("warning\nno such layer\n", file=sys.stderr)
            sys.exit(3)
        case "signal":
            os.kill(os.getpid(), int(arguments[0]))
        case "fail" | "follow":
            until_all(lambda row: row.state != RankState.STARTING)
            time.sleep(float(arguments[0]))
            status.fail("ValueError: fail", consequence=deed == "follow")
            time.sleep(FOREVER_S)
        case "loop":
            while True:
                pass
        case "hold":
            ctypes.PyDLL(None).sleep(int(FOREVER_S))  # with the interpreter's lock: no other thread runs
        case "save":
            status.at(-1, RankState.SAVING)
            time.sleep(float(arguments[0]))
            status.at(-1, RankState.FINISHED)
        case "wait":
            status.at(TASK, RankState.WAITING, int(arguments[0]))
            time.sleep(FOREVER_S)
        case "allocate":
            resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28))
            bytearray(2**30)
        case "allocate-and-say":
            resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28))
            try:
                bytearray(2**30)
            except MemoryError as error:
                status.fail(repr(error))
                raise
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            subprocess.Popen(["sleep", str(FOREVER_S)])
            while True:
                status.at(TASK, RankState.COMPUTING)
                time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
