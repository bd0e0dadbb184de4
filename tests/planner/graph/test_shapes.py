"""Intervals of inputs against the indices that windows, groups and concatenations read, one by one."""

import numpy as np
from hypothesis import given, strategies as st

from planner.graph.shapes import IntervalMap


@st.composite
def windows(draw):
    """A map, sizes of output and input, and an interval of the output."""
    fields = {name: draw(st.integers(1, 3)) for name in ("kernel", "stride", "dilation")}
    fields |= {name: draw(st.integers(0, 3)) for name in ("pad", "offset") if draw(st.booleans())}
    size = draw(st.integers(1, 9))
    low = draw(st.integers(0, size))
    return IntervalMap(dim="height", **fields), draw(st.integers(1, 12)), low, draw(st.integers(low, size))


@given(windows())
def test_a_window_reads_from_its_first_to_its_last_index_within_the_input(case):
    window, size, low, high = case

    start, stop = window.interval(np.array([low]), np.array([high]), size)

    read = [
        o * window.stride - window.pad - window.offset + k * window.dilation
        for o in range(low, high)
        for k in range(window.kernel)
    ]
    within = range(max(min(read), 0), min(max(read) + 1, size)) if read else range(0)
    assert (int(start[0]), int(stop[0])) == ((within.start, within.stop) if within else (0, 0))


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.data())
def test_a_group_reads_the_group_of_each_of_its_indices(groups, made, read, data):
    low = data.draw(st.integers(0, groups * made - 1))
    high = data.draw(st.integers(low + 1, groups * made))

    start, stop = IntervalMap(dim="channel", group_out=made, group_in=read).interval(
        np.array([low]), np.array([high]), groups * read
    )

    indices = [o // made * read + i for o in range(low, high) for i in range(read)]
    assert (int(start[0]), int(stop[0])) == (min(indices), max(indices) + 1)
