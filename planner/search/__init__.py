"""Searches for the strategy of least additive cost, on abstract cost tables."""

from planner.search.depth_first import depth_first
from planner.search.elimination import eliminate
from planner.search.problem import SearchProblem, Solution, TensorCost, evaluate, restrict
from planner.search.pruned import eliminate_pruned

__all__ = [
    "SearchProblem",
    "Solution",
    "TensorCost",
    "depth_first",
    "eliminate",
    "eliminate_pruned",
    "evaluate",
    "restrict",
]
