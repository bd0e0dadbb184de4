"""The type of callbacks that report progress."""

from collections.abc import Callable

__all__ = ["Progress"]

Progress = Callable[[str, int, int], None]
"""Called as ``progress(label, done, total)``."""
