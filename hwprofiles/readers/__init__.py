"""Readers of what machines print about themselves: topologies, measured links, network cards, switches of a network."""
