"""What all tests share: one hypothesis profile."""

from hypothesis import settings

# The machine may be shared: no test depends on how long an example takes, and failures repeat.
settings.register_profile("orrery", deadline=None, derandomize=True)
settings.load_profile("orrery")
