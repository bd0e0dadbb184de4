"""Types and numbers that the tests of compression share."""

import numpy as np
from hypothesis import settings, strategies as st
from hypothesis.extra import numpy as hnp

FLOAT32_MAX = float(np.finfo(np.float32).max)
FEW = settings(max_examples=8)  # times the number of types

TABLE_TYPES = (
    "dynamic-tree",
    "dynamic-tree:block=64",
    "dynamic-tree:top=0.8",
    "dynamic-tree:normalised=0,offset=2",
    "static-tree",
    "static-tree:offset=-28",
    "static-tree:normalised=1,block=128",
    "linear",
    "linear:block=64",
    "linear:normalised=0,offset=37",
    "mantissa",
    "mantissa:normalised=1",
)
FLOAT_TYPES = ("float16", "bfloat16", "float32")
FEEDBACK_TYPES = ("one-bit", "one-bit:block=64", "threshold", "threshold:threshold=0.5,every=1", "threshold:every=200")
ALL_TYPES = (*TABLE_TYPES, *FLOAT_TYPES, *FEEDBACK_TYPES)


def tensors(*, low=0, high=300, largest=FLOAT32_MAX):
    """float32 arrays: any finite numbers, denormals among them, or numbers of like size."""
    anything = st.floats(-largest, largest, width=32)
    alike = st.floats(-2.0, 2.0, width=32)
    return st.integers(low, high).flatmap(
        lambda n: st.one_of(*(hnp.arrays(np.float32, n, elements=kind) for kind in (anything, alike)))
    )


def assert_same_bits(one, other):
    np.testing.assert_array_equal(one.view(np.int32), other.view(np.int32))
