"""Sweeps: many what-if points from one file, computed side by side, each stored as soon as it is there."""

from planner.sweep.run import Outcome, run_sweep
from planner.sweep.spec import Sweep, read_sweep
from planner.sweep.store import Store

__all__ = ["Outcome", "Store", "Sweep", "read_sweep", "run_sweep"]
