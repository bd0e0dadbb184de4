"""Modules that a user's own code builds: the only place that runs it, and only where the user names it as code."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from groundwork.errors import ConfigError
from groundwork.input_files import check_input

if TYPE_CHECKING:
    import torch


_CODE_MIB = 8
MOST_BUILT = 2**28
"""Most parameters of a module that is built with values for the sake of its buffers."""


def built_module(spec: str, *, file: Path | None = None) -> "torch.nn.Module":
    """Build a module by calling a function, or a class, without arguments; on the meta device where it can be.

    Args:
        spec: ``package.module:function``, ``FILE.py:function``, or ``function`` with a file.
        file: Python file that holds the function; None: that of the spec.

    Raises:
        ConfigError: There is no such code, it raises an exception, or what it returns is no ``torch.nn.Module``.
    """
    if importlib.util.find_spec("torch") is None:
        raise ConfigError("torch must be installed to import a model: pip install 'orrery-training[executor]'")
    import torch

    where, _, name = spec.rpartition(":")
    if not name.isidentifier() or (file is None and not where):
        raise ConfigError(f"model must be package.module:function, got {spec!r}")
    if file is None and where.endswith(".py"):
        file = Path(where)
    code = _file(file) if file is not None else _module(where)
    build = getattr(code, name, None)
    if build is None:
        named = [each for each in vars(code) if not each.startswith("_") and callable(getattr(code, each))]
        raise ConfigError(
            f"model: {file or where} must have {name!r}; it has {', '.join(named[:12]) or 'no functions'}"
        )
    module = build if isinstance(build, torch.nn.Module) else _called(build, spec)
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(f"model: {spec} must return a torch.nn.Module, got {type(module).__name__}")
    return module


def _called(build: Callable[[], Any], spec: str) -> Any:
    """Return what a function returns: on the meta device, or, where its code needs values, on the processor."""
    import torch

    try:
        with torch.device("meta"):
            made = build()
    except (Exception, SystemExit):  # code that reads values of tensors while it builds runs with values
        return _guarded(build, f"model: {spec}")
    # values of buffers that no state_dict holds are a part of the model: they are there where it is built with values
    return _guarded(build, f"model: {spec}") if _has_unsaved_buffers(made) else made


def _has_unsaved_buffers(made: Any) -> bool:
    """Return whether a module has buffers that its ``state_dict`` has not, and is small enough to be built again."""
    import torch

    if not isinstance(made, torch.nn.Module):
        return False
    saved = made.state_dict().keys()
    elements = sum(each.numel() for each in made.parameters())
    return elements <= MOST_BUILT and any(key not in saved for key, _ in made.named_buffers())


def _guarded(run: Callable[[], Any], what: str) -> Any:
    """Run a user's code; whatever it raises becomes one line."""
    try:
        return run()
    except (Exception, SystemExit) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "/planner/tracing/" not in f.filename]
        own = [f for f in frames if "importlib" not in f.filename and "/torch/" not in f.filename] or frames
        at = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
        text = " ".join(str(error).split())[:300]
        raise ConfigError(f"{what} raised {type(error).__name__}{at}: {text}") from None


def _module(name: str) -> ModuleType:
    """Import a module by its name, also from the working folder."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found = _guarded(lambda: _found(name), f"model: module {name}")
    if found is None:
        raise ConfigError(f"model: module {name!r} cannot be found; it must be importable from {here}")
    if found.has_location:
        check_input(found.origin, "module", limit_mib=_CODE_MIB)
    module: ModuleType = _guarded(lambda: importlib.import_module(name), f"model: module {name}")
    return module


def _found(name: str) -> ModuleSpec | None:
    """Return where a module is; this runs the code of the packages around it."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None


def _file(path: Path) -> ModuleType:
    """Run a Python file as a module."""
    check_input(path, "model file", limit_mib=_CODE_MIB)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"model file {path} must be a Python file")
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[path.stem] = module
    _guarded(lambda: loader.exec_module(module), f"model file {path}")
    return module
