"""A clock of the day that jumps by hours, as one does that is set while programs run."""

import os
import random
import time

VARIABLE = "ORRERY_TEST_CLOCK"


def jump(seed: int) -> None:
    """Let ``time.time`` and ``time.time_ns`` of this process jump at random, by up to five hours."""
    true_ns, rng, offset_ns = time.time_ns, random.Random(seed), [0]

    def time_ns() -> int:
        if rng.random() < 0.2:
            offset_ns[0] = rng.randrange(-(5 * 3600), 5 * 3600) * 10**9
        return true_ns() + offset_ns[0]

    time.time_ns, time.time = time_ns, lambda: time_ns() / 1e9


if VARIABLE in os.environ:
    jump(int(os.environ[VARIABLE]))
