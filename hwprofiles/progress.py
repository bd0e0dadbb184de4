"""The type of callbacks that hear of progress."""

from collections.abc import Callable

__all__ = ["Progress"]

Progress = Callable[[str, int, int], None]
"""Called as ``progress(label, done, total)``."""
