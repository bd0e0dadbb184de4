"""Files that are written whole or not at all, by however many threads and processes at once."""

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from groundwork.input_files import AnyPath, path_of

_OURS = re.compile(r"\.orrery-[0-9a-f]{16}")
"""Names of the folders that hold what is being written."""


@contextmanager
def replacing(target: AnyPath) -> Iterator[Path]:
    """Yield an empty file that takes the place of ``target`` when the block ends well, and vanishes otherwise.

    The file has the name of ``target`` and lies beside it, in a hidden folder of this writer alone.  It is on the
    disk before it takes the place, so that also a loss of power leaves the old file or the new one; of several writers
    the last to end wins.  What was at ``target`` stays until the block ends, also after Ctrl-C.  A device or a pipe,
    such as ``/dev/null``, is written to itself.

    Raises:
        ConfigError: ``target`` is no path.
        OSError: The folder is missing or cannot be written, ``target`` is a folder, or a pipe that nobody reads.
    """
    path = path_of(target, "output")
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY))  # a pipe needs a reader
        yield path
        return
    # Remove what killed processes have left there: their locks are free, those of living ones are not.
    with suppress(OSError):  # whoever makes a folder there next gets the error
        for name in filter(_OURS.fullmatch, os.listdir(path.parent)):
            with suppress(OSError):
                _remove_left(path.parent / name)
    folder, lock = _own_folder(path.parent)
    try:
        beside = folder / path.name
        beside.touch()
        yield beside
        sync(beside)
        os.replace(beside, path)
    finally:  # also after an interruption
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _own_folder(parent: Path) -> tuple[Path, int]:
    """Make a folder with a lock in it, which holds until this process ends, however it does; return both.

    The lock is a file that nobody renames or replaces, whatever is written beside it.
    """
    while True:
        folder = parent / f".orrery-{os.urandom(8).hex()}"
        folder.mkdir(mode=0o700)
        lock = -1
        with suppress(FileNotFoundError, BlockingIOError):  # another writer took it for one that was left
            lock = os.open(folder / folder.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:
                return folder, lock
        if lock >= 0:
            os.close(lock)


def _remove_left(folder: Path) -> None:
    """Remove a folder whose lock is free.

    Raises:
        OSError: A living process writes in it, or removes it.
    """
    try:
        lock = os.open(folder / folder.name, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return folder.rmdir()  # its process ended before it had made the lock
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk, past the system's cache."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
