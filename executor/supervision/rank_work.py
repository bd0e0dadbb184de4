"""Work of one rank: in its process group, ended well or with the reason on the status board."""

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from executor.rendezvous.rank_environment import RankEnvironment, rank_environment
from executor.rendezvous.rank_network import check_network, use_network
from executor.rendezvous.rank_store import opened_store
from executor.runtime.devices import ComputeDevice
from executor.supervision.launcher import RESULT
from executor.supervision.status_board import BOARD_VARIABLE, RankState, RankStatus, own_status
from groundwork.errors import OrreryError

_WATCHED, _ALONE = timedelta(days=7), timedelta(minutes=30)
"""Time-outs of the back end: long with a supervisor, which sees a rank that hangs much earlier; shorter without."""

_NO_THREADS = ("can't start new thread", "Resource temporarily unavailable")
"""Words of Python and of the C++ library where no thread can be started."""


def group_timeout() -> timedelta:
    """Return the time that the back end lets a rank wait for another."""
    return _WATCHED if BOARD_VARIABLE in os.environ else _ALONE


@contextmanager
def process_group(where: RankEnvironment, device: ComputeDevice) -> Iterator[None]:
    """Open the default process group of a device's back end, and close it again, unless the block fails.

    Closing waits for operations that are still under way; after a failure the other ranks may never take part in them.
    Its sockets listen at one interface: loopback where all ranks are on this machine.
    """
    use_network(where)
    store = opened_store(where, group_timeout())  # kept here: torch holds only the part of it that is not Python
    dist.init_process_group(
        device.backend,
        store=store,
        rank=where.rank,
        world_size=where.ranks,
        timeout=group_timeout(),
        device_id=device.torch_device if device.backend == "nccl" else None,
    )
    yield
    dist.destroy_process_group()


def serve(work: Callable[[RankEnvironment, RankStatus], None]) -> NoReturn:
    """Do the work of the rank that the environment names, and end its process.

    The process ends at once, without the interpreter's clean-up: after a failure other threads may wait in the back
    end for ever, and unloading torch takes most of a second of a core, on a busy machine several seconds.
    """
    where = rank_environment()
    status = own_status(where.rank)
    try:
        check_network(where)
        work(where, status)
        sys.stdout.flush()
        sys.stderr.flush()
        status.at(-1, RankState.FINISHED)
    except Exception as error:
        reason, consequence = _reason(error)
        refused = isinstance(error, OrreryError)
        status.fail(reason, consequence=consequence, refused=refused)
        print(f"rank {where.rank}: {reason}", file=sys.stderr, flush=True)
        os._exit(2 if refused else 1)
    os._exit(0)


def serve_job(work: Callable[[Any, RankEnvironment, RankStatus], object]) -> NoReturn:
    """Do the work of a rank on the job that ``launch`` has written, and end its process, as ``serve`` does.

    What the work returns, on rank 0 alone, is what ``launch`` returns.
    """
    job = Path(sys.argv[1])

    def on_job(where: RankEnvironment, status: RankStatus) -> None:
        result = work(pickle.loads(job.read_bytes()), where, status)
        if result is not None:
            job.with_name(RESULT).write_bytes(pickle.dumps(result))

    serve(on_job)


def _reason(error: Exception) -> tuple[str, bool]:
    """Return the reason of an error on one line, and whether it only follows from the end of another rank."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in text:
        return f"out of memory: {text}", False
    if text.endswith(_NO_THREADS):
        return f"cannot start a thread: a limit of processes has been reached ({text})", False
    if isinstance(error, OrreryError | FloatingPointError):
        return text, False
    if isinstance(error, TimeoutError):
        return text, True
    if isinstance(error, dist.DistError) or "onnection" in text or "gloo" in text.lower():
        return text, True
    return f"{type(error).__name__}: {text}", False
