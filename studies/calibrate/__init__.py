"""Calibration: compute profiles fitted to measured kernels and networks, with errors on what was held out."""
