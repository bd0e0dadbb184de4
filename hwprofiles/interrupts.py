"""Interrupts that bring what is finished of the work they end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Interrupted", "keeping"]


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
