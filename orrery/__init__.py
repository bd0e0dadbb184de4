"""Plan, simulate, run and compare the parallel training of neural networks.

Names are loaded on first use: ``import orrery`` costs nothing.  ``__init__.pyi`` lists them.
"""

from functools import cache
from importlib import import_module
from pathlib import Path


@cache
def _modules() -> dict[str, str]:
    """Return the module that defines each public name."""
    import ast

    tree = ast.parse(Path(__file__).with_suffix(".pyi").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if name == "__all__":
        return sorted(_modules())
    if name.startswith("_") or name not in _modules():
        raise AttributeError(f"module 'orrery' has no attribute {name!r}")
    return getattr(import_module(_modules()[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(_modules())
