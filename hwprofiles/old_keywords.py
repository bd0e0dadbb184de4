"""Keyword arguments that were renamed: the old name works for one version, with a warning."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def renamed_keywords(**new_names: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator that passes keyword arguments by their new names, and warns of each old name.

    Args:
        new_names: New name of every keyword argument that was renamed, by its old name.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Let a function take the old names too, with a warning."""

        @wraps(function)
        def call(*args: _P.args, **options: _P.kwargs) -> _R:
            for old in new_names.keys() & options.keys():
                warn_old_name(f"{function.__name__}: {old} is now called {new_names[old]}")
                options[new_names[old]] = options.pop(old)
            return function(*args, **options)

        return call

    return decorate


def warn_old_name(message: str, *, depth: int = 1) -> None:
    """Warn that an old name was used, at the line that used it.

    Args:
        message: The old name and the new one.
        depth: Calls between that line and the function that warns.
    """
    warnings.warn(f"{message}; the old name works in this version only", FutureWarning, stacklevel=depth + 2)
