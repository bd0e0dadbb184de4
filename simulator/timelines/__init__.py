"""Analyses of a replayed timeline: use of resources, lower bounds, the critical path."""
