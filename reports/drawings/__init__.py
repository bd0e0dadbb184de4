"""Layouts of drawings: networks, clusters and timelines as positions, lines and compact columns."""
