"""Lowering of a strategy to the program of one iteration: tasks, transfers, gradient synchronisation."""
