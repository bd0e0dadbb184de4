"""Plug-ins: models, clusters, devices and strategies that installed packages offer by entry points."""
