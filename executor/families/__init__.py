"""Families of networks, built on the meta device from the configurations that are published with their weights."""
