"""Validation: the strategies of a model are predicted, run in turns, and set side by side, task by task."""
