"""Searches: layer-wise strategies, refinement, hybrids, pipeline stages, compression, order of synchronisation."""
