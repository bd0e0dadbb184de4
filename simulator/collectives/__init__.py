"""Collectives as rounds of point-to-point messages, which the cost model prices and the engines replay."""
