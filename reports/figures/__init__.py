"""Plotly figures of results, one module for each kind of result."""
