"""Measurements, by others and by us, to which profiles are fitted and against which predictions are judged."""
