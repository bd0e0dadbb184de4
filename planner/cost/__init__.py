"""Costs of a strategy, the terms of Eq. 1 in bulk: compute, transfers, gradient synchronisation, codecs, link loads."""
