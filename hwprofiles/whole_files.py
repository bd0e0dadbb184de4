"""Files that are written whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["replacing"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield an empty file beside ``path`` that takes its place when the block ends well, and vanishes otherwise.

    The file has the suffix of ``path``; what was at ``path`` stays until the block ends, also after Ctrl-C.  A device
    or a pipe, such as ``/dev/null``, is written to itself.

    Raises:
        OSError: The folder is missing or cannot be written, or ``path`` is a folder.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        yield path
        return
    beside = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        beside.touch()
        yield beside
        os.replace(beside, path)
    except BaseException:  # also an interruption
        with suppress(OSError):  # its folder may be none
            beside.unlink()
        raise
