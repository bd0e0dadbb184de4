"""Long work: how far it is, and what an interrupt keeps of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[str, int, int], None]
"""Called as ``progress(label, done, total)``."""


class Interrupted(KeyboardInterrupt):
    """Interrupt of work of which a part is finished."""

    def __init__(self, finished: Any) -> None:
        super().__init__()
        self.finished = finished
        """What the work would have returned, of the part that is finished."""


@contextmanager
def keeping(finished: Callable[[], Any]) -> Iterator[None]:
    """Let an interrupt of a block bring what is finished; another one while that is put together ends it at once.

    Args:
        finished: Returns the result of what is finished, None where that is nothing.

    Raises:
        Interrupted: The block was interrupted, and something is finished.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        part = finished()
        if part is None:
            raise
        raise Interrupted(part) from error
