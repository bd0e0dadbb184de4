"""Machines: device graphs, links, routes, compute profiles, and the catalogue of clusters."""
