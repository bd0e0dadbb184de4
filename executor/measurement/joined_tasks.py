"""Times of the tasks of all ranks, joined: what starts a run needs no PyTorch for them."""

import numpy as np

from groundwork.array_types import Floats


class JoinedTasks:
    """Starts, ends and sent bytes of all tasks, shape (iterations, tasks) each, of the ranks that have been added.

    Ranks must be added in their order: then sums of bytes have the same last bit whichever way they came.
    """

    def __init__(self, iterations: int, tasks: int) -> None:
        self.start_s, self.end_s, self.sent_bytes = (np.full((iterations, tasks), np.nan) for _ in range(3))

    def add(self, first: int, times: Floats) -> None:
        """Add one rank's measurements of some iterations.

        Args:
            first: The first of the iterations.
            times: Starts, ends and sent bytes, shape (iterations, 3, tasks); NaN where the rank measures nothing.
        """
        rows = slice(first, first + len(times))
        # a collective starts when the last rank joins it; the start of any other task is measured by one rank
        for joined, values in ((self.start_s[rows], times[:, 0]), (self.end_s[rows], times[:, 1])):
            np.fmax(joined, values, out=joined)
        sent, values = self.sent_bytes[rows], times[:, 2]
        sent[:] = np.where(np.isnan(sent), values, sent + np.nan_to_num(values))
