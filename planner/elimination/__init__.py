"""Exact searches for the strategy of least cost, on abstract cost tables that know nothing of layers."""
