"""The built-in models.  A new file in this folder that registers its models is found by itself."""

import importlib
import pkgutil

from planner.models.builder import ModelBuilder
from planner.models.registry import load_model, model_names

__all__ = ["ModelBuilder", "load_model", "model_names"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
