"""Files that are written whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

from hwprofiles import ConfigError

__all__ = ["whole_file"]


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file beside ``path`` that takes its place when the block ends well, and vanishes otherwise.

    Raises:
        ConfigError: The folder cannot be written.
    """
    try:
        beside = NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False)  # noqa: SIM115
    except OSError as error:
        raise ConfigError(f"output {str(path)!r} must be in a folder that can be written: {error.strerror}") from error
    try:
        with beside:
            yield beside
        os.chmod(beside.name, 0o644)
        os.replace(beside.name, path)
    except BaseException:  # also an interruption
        Path(beside.name).unlink(missing_ok=True)
        raise
