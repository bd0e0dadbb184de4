"""The routes of a cluster as arrays, for pricing and lowering."""
