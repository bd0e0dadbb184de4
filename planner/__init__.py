"""Computation graphs, configurations, costs, lowering and the searches."""
