"""Searches for the strategy of least additive cost, on abstract cost tables."""

from planner.search.elimination import eliminate
from planner.search.problem import SearchProblem, Solution, TensorCost, evaluate, restrict

__all__ = ["SearchProblem", "Solution", "TensorCost", "eliminate", "evaluate", "restrict"]
