"""Predictions beside public measurements: every comparison, and the intervals that follow from the errors."""
