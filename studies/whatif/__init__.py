"""Scenarios of a changed cluster, and the plans on it."""
