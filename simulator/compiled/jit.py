"""Decorators that compile the engine's functions with numba."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from simulator.compiled.numba_start import spare_scipy

__all__ = ["compiled", "saved"]

spare_scipy()

Function = TypeVar("Function", bound=Callable[..., Any])

# No array is made or kept in compiled code, and counting references would take most of the time.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def compiled(function: Function) -> Function:
    """Compile a function that only compiled functions call; it is saved as a part of these."""
    return cast(Function, numba.njit(**_OPTIONS)(function))


def saved(function: Function) -> Function:
    """Compile a function that Python calls, and save its code on disk, with that of all functions that it calls."""
    return cast(Function, numba.njit(cache=True, **_OPTIONS)(function))
