"""Figures of the pages; one module a figure, each a function from results to a Plotly figure."""
