"""Decorators of functions that run as plain Python while there is little to do, and are compiled with numba else.

To import numba and to load its code from disk takes two thirds of a second of processor time, in which plain Python
does all that a small plan needs; to compile takes seconds.  Both ways give the same bits.
"""

from collections.abc import Callable
from functools import cached_property
from threading import RLock
from typing import Any, TypeVar

from simulator.compiled.numba_start import spare_scipy

spare_scipy()

Function = TypeVar("Function", bound=Callable[..., Any])

# No array is made or kept in compiled code, and counting references would take most of the time.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
# Python cannot call these: to take the two dozen arrays of a state apart for Python takes longer to compile than most
# functions do.
_PART: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True, "no_cpython_wrapper": True}

PLAIN_S = 0.3
"""Processor time that plain Python takes in a process, about, before what follows is compiled."""

_lock = RLock()
_parts: list[tuple[Callable[..., Any], dict[str, Any]]] = []
"""Functions that only compiled functions call, and how to compile them, as far as numba does not know them yet."""
_taken_s = 0.0


def compiled(function: Function) -> Function:
    """Mark a function that compiled functions without arrays of their own call; it is saved as a part of these."""
    _parts.append((function, {**_OPTIONS, **_PART}))
    return function


def inner(function: Function) -> Function:
    """Mark a part that makes arrays, or leaves division by zero to Python."""
    _parts.append((function, _PART))
    return function


def pays(plain_s: float) -> bool:
    """Return whether to run compiled code, for something that takes plain Python so many seconds, and note them."""
    global _taken_s
    _taken_s += plain_s
    return _taken_s > PLAIN_S


class CompiledKernel:
    """A function that Python calls; its code is saved on disk, with that of all functions that it calls.

    Args:
        plain: The function, without keyword arguments.
        plain_s: Returns the seconds that plain Python takes for its arguments, about and at most.
        signature: Types of the arguments; those of the first call if none.
        options: How numba compiles it.
    """

    def __init__(
        self, plain: Callable[..., Any], plain_s: Callable[..., float], signature: str | None, options: dict[str, Any]
    ) -> None:
        self.plain, self._plain_s, self._signature, self._options = plain, plain_s, signature, options

    def __call__(self, *values: Any) -> Any:
        """Call it as it is quicker."""
        return self.compiled(*values) if pays(self._plain_s(*values)) else self.plain(*values)

    @cached_property
    def compiled(self) -> Any:
        """The function as numba compiles it, at its first call, or loads it from disk."""
        import numba

        with _lock:
            while _parts:
                part, options = _parts.pop()
                dispatcher = numba.njit(**options)(part)
                # numba asks functions for their type, which refers to the dispatcher weakly
                vars(part).update(dispatcher=dispatcher, _numba_type_=dispatcher._numba_type_)
            return numba.njit(self._signature, cache=True, **self._options)(self.plain)


def kernel(
    plain_s: Callable[..., float], signature: str | None = None, **options: Any
) -> Callable[[Callable[..., Any]], CompiledKernel]:
    """Make a ``CompiledKernel`` of a function; for the arguments see there.  It does not hold Python's lock."""
    return lambda function: CompiledKernel(function, plain_s, signature, {"nogil": True, **options})


def saved(function: Callable[..., Any]) -> CompiledKernel:
    """Make a ``CompiledKernel`` of a function without arrays of its own, whose callers choose between its two forms."""
    return CompiledKernel(function, lambda *_: 0.0, None, _OPTIONS)
