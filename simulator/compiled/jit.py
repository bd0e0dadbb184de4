"""Decorators that compile the engine's functions with numba."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from simulator.compiled.numba_start import spare_scipy

spare_scipy()

Function = TypeVar("Function", bound=Callable[..., Any])

# No array is made or kept in compiled code, and counting references would take most of the time.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
_INNER: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True}


def compiled(function: Function) -> Function:
    """Compile a function that only compiled functions call; it is saved as a part of these.

    Python cannot call it: to take the two dozen arrays of a state apart for Python takes longer to compile than most
    functions do.
    """
    return cast(Function, numba.njit(**_INNER)(function))


def saved(function: Function) -> Function:
    """Compile a function that Python calls, and save its code on disk, with that of all functions that it calls."""
    return cast(Function, numba.njit(cache=True, **_OPTIONS)(function))


def inner(function: Function) -> Function:
    """Compile a function that makes arrays, or leaves division by zero to Python, and that only compiled ones call."""
    options: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Function, numba.njit(**options)(function))
