"""Output files of task graphs: written whole or not at all, with an error that names the folder."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

from groundwork.errors import ConfigError
from groundwork.input_files import AnyPath
from groundwork.whole_files import replacing


@contextmanager
def whole_file(path: AnyPath) -> Iterator[IO[bytes]]:
    """Open a file beside ``path`` that takes its place when the block ends well, and vanishes otherwise.

    Raises:
        ConfigError: The folder cannot be written.
    """
    with ExitStack() as stack:
        try:
            beside = stack.enter_context(replacing(path))
        except OSError as error:
            raise ConfigError(
                f"output {str(path)!r} must be in a folder that can be written: {error.strerror}"
            ) from error
        yield stack.enter_context(beside.open("wb"))
