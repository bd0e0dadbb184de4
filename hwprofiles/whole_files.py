"""Files that are written whole or not at all."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

__all__ = ["replacing"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield an empty file beside ``path`` that takes its place when the block ends well, and vanishes otherwise.

    The file has the suffix of ``path``; what was at ``path`` stays until the block ends, also after Ctrl-C.  A device
    or a pipe, such as ``/dev/null``, is written to itself.

    Raises:
        OSError: The folder is missing or cannot be written, ``path`` is a folder, or a pipe that nobody reads.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY))  # a pipe needs a reader
        yield path
        return
    _sweep(path)
    beside = path.with_name(f".{path.stem}.orrery-{os.getpid()}{path.suffix}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # until this process ends, however it does
        yield beside
        os.replace(beside, path)
    except BaseException:  # also an interruption
        with suppress(OSError):  # its folder may be gone
            beside.unlink()
        raise
    finally:
        os.close(handle)


def _sweep(path: Path) -> None:
    """Remove what killed processes have left of this file: their locks are free, those of living ones are not."""
    # a file that replaces one that replaces another has two numbers
    left = re.compile(rf"\.+{re.escape(path.stem)}(?:\.orrery-([0-9]+))+{re.escape(path.suffix)}")
    try:
        found = [match for match in map(left.fullmatch, os.listdir(path.parent)) if match]
    except OSError:
        return  # which creating the file explains
    for name, process in ((match[0], int(match[1])) for match in found):
        if psutil.pid_exists(process):
            continue
        with suppress(OSError):
            handle = os.open(path.with_name(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.with_name(name).unlink()
            finally:
                os.close(handle)
