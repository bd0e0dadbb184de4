"""The promise that a rank which has finished, or failed, ends at once, whatever its interpreter's end waits for."""

import sys
from pathlib import Path

import pytest

from executor.probe.probe_run import probe
from executor.probe.probe_settings import ProbeSettings
from executor.rendezvous.rank_environment import held_port, local_environment
from executor.supervision.diagnosis import Patience, RankFailure
from executor.supervision.status_board import RankState, StatusBoard
from executor.supervision.supervisor import supervise
from executor.validation.validation_request import ValidationRequest
from executor.validation.validation_run import validate

pytestmark = pytest.mark.timeout(120)

STALL_S = 8.0
"""Longer than a busy machine takes for what these ranks do; far shorter than what their interpreters wait for."""

SMALL_RANK = [sys.executable, str(Path(__file__).parents[1].joinpath("small_rank.py"))]

RANK = """
import atexit, sys, threading, time
from datetime import timedelta
import psutil
import torch
import torch.distributed as dist
from executor.runtime.devices import CpuDevice
from executor.supervision.rank_work import process_group, serve
from executor.supervision.status_board import RankState

def finish(where, status):
    "Leave what keeps an interpreter from ending."
    atexit.register(time.sleep, 600)
    threading.Thread(target=time.sleep, args=(600,)).start()
    with process_group(where, CpuDevice()):
        dist.barrier()
        listening = {row.laddr.ip for row in psutil.Process().net_connections("tcp") if row.status == "LISTEN"}
    print("done by", where.rank, "at", *listening)

def fail(where, status):
    "Fail while others have not done their part of a sum."
    with process_group(where, CpuDevice()):
        group = dist.new_group(timeout=timedelta(minutes=10))
        status.at(-1, RankState.WAITING)
        dist.barrier()
        if where.rank == 1:
            status.at(7, RankState.COMPUTING)
            dist.all_reduce(torch.ones(4), group=group, async_op=True)
            del group
            raise ValueError("no such number")
        status.at(7, RankState.WAITING, 1)
        time.sleep(600)

serve({"finish": finish, "fail": fail}[sys.argv[1]])
"""


def supervised(folder, deed, *, python=sys.executable):
    """Run two ranks that do the deed."""
    board = StatusBoard.create(folder / "board", 2)
    with held_port() as port:
        supervise(
            [[str(python), "-c", RANK, deed]] * 2,
            environments=[local_environment(rank, 2, port, 1) for rank in range(2)],
            board=board,
            patience=Patience(stall_s=STALL_S),
            log_folder=folder,
        )
    return board


def test_a_rank_that_has_finished_ends_though_its_interpreter_would_not(tmp_path):
    """Threads and handlers of the interpreter's end may wait for ever; what was printed is kept.

    Until then it has listened at the loopback interface alone, for the store and for the other ranks.
    """
    board = supervised(tmp_path, "finish")

    assert [row.state for row in board.rows()] == [RankState.FINISHED] * 2
    assert [(tmp_path / f"rank-{rank}.log").read_text() for rank in range(2)] == [
        f"done by {rank} at 127.0.0.1\n" for rank in range(2)
    ]


def test_a_rank_that_fails_says_so_though_others_keep_its_sums_waiting(tmp_path, warm_programs):
    """Closing a process group waits for what is under way: the reason is told instead."""
    with pytest.raises(RankFailure, match=r"^rank 1, .*: ValueError: no such number$"):
        supervised(tmp_path, "fail", python=warm_programs / "python")


ENDLESS = """
import atexit, os, time
if "ORRERY_STATUS_BOARD" in os.environ:
    atexit.register(time.sleep, 600)
"""
"""What Python runs as it starts: its end then lasts longer than any test."""


def test_ranks_of_probes_and_validations_end_at_once(tmp_path, monkeypatch):
    """Both come to their answers though no interpreter of their ranks would end in time."""
    (tmp_path / "sitecustomize.py").write_text(ENDLESS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    board = StatusBoard.create(tmp_path / "board", 1)
    with pytest.raises(RankFailure, match="has finished but does not end"):  # so the hook is really there
        supervise(
            [[*SMALL_RANK, "finish-as-interpreters-do"]],
            environments=[{"RANK": "0"}],
            board=board,
            patience=Patience(stall_s=0.5),
        )

    settings = ProbeSettings(batch=4, processes=1, strategies=("data",), device="cpu", repetitions=1, codecs=())
    probed = probe(["lenet5"], settings, out=tmp_path)
    request = ValidationRequest(
        batch=4, strategies=("data",), processes=1, cluster=str(probed.cluster_file), rounds=1, turn_s=0.01
    )
    found = validate("lenet5", request)

    assert [row.name for row in found.strategies] == ["data"]
