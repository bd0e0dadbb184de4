"""The built-in models.  A new file in this folder that registers its models is found by itself."""

from planner.models.builder import ModelBuilder
from planner.models.registry import load_model, model_names

__all__ = ["ModelBuilder", "load_model", "model_names"]
