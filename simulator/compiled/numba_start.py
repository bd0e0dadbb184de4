"""A lighter start of numba: SciPy is loaded when linear algebra is compiled, not before any function is."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_MODULE = "numba.np.arraymath"
"""Asks whether there is a BLAS by importing ``scipy.linalg``, which takes longer than all of numba's own imports."""


def spare_scipy() -> None:
    """Let numba take it that SciPy has a BLAS, from its being installed; call this where numba is imported.

    Functions that use linear algebra import SciPy, and check it, when they are compiled, as ever.
    """
    planned = any(isinstance(finder, _Finder) for finder in sys.meta_path)
    if not planned and _MODULE not in sys.modules and find_spec("scipy") is not None:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds the one module, and removes itself."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the module's usual specification, with a loader that lets it ask nothing."""
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_without_asking(module: ModuleType) -> None:
            """Execute the module while ``ensure_blas`` does nothing."""
            from numba.np import linalg

            known = linalg.ensure_blas
            linalg.ensure_blas = lambda: None
            try:
                execute(module)
            finally:
                linalg.ensure_blas = known

        loader.exec_module = execute_without_asking
        return spec
