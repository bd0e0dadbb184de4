"""Folders that the ranks of one job share; those of jobs that were killed are removed by the next job."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "orrery-scratch-"
_MEMORY = Path("/dev/shm")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder that the ranks of one job share, in memory where the system has such a folder; gone afterwards.

    Folders of jobs that have been killed are removed first.  A lock on the folder shows that its job lives: the
    system releases it however the process ends, and it counts between containers, where process ids do not.
    """
    base = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    for left in base.glob(f"{_PREFIX}*"):
        if (lock := _lock(left)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    folder, lock = _locked_folder(base)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        os.close(lock)


def _locked_folder(base: Path) -> tuple[Path, int]:
    """Return a new folder, and the descriptor that locks it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        # Before it is locked, another job may take it for one that was left, and remove it.
        if (lock := _lock(folder)) is not None:
            if folder.exists():
                return folder, lock
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """Return a descriptor that locks a folder; None if another holds the lock, or the folder is gone or another's."""
    with suppress(OSError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
        else:
            return lock
    return None
