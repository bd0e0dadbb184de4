"""Searches for strategies: layer-wise, refinement, hybrids, pipeline stages, order of synchronisation."""
