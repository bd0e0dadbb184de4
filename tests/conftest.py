"""What all tests share: one hypothesis profile, compiled modules for the processes that they start, few collections."""

import gc
import os
import sys

from hypothesis import settings

# Hundreds of processes are started, and compiling the project's modules again takes each a third of a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The machine may be shared: no test depends on how long an example takes, and failures repeat.
settings.register_profile("orrery", deadline=None, derandomize=True)
settings.load_profile("orrery")

# Looking for cycles after every 700 new objects, as Python does, is a tenth of the time of tests of the planner.
gc.set_threshold(50_000, 10, 10)
