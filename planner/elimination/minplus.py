"""Compiled (min,+) products, which are all the arithmetic of the elimination.

``inf`` stands for a forbidden pair and needs no special case, because nothing here subtracts.
"""

import functools
import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from groundwork.array_types import Floats
from simulator.compiled.jit import kernel

PER_THREAD = 2_000_000
"""Least number of sums for each thread: about 0.4 ms of work, against 0.05 ms to hand it over."""
PER_JOB = 200_000_000
"""Largest number of sums that a thread forms at a time: about 40 ms of compiled code, which no signal interrupts."""
DEPTH_BLOCK = 64
"""Rows of the right table that are processed together: 64 rows of 700 entries stay in the second-level cache."""


@kernel(
    lambda left, middle, right, *_: 3e-7 * left.size * right.shape[1],
    "void(float64[:,::1], float64[::1], float64[:,::1], float64[::1], float64[:,::1])",
    error_model="numpy",
)
def _product(left: Floats, middle: Floats, right: Floats, floor: Floats, out: Floats) -> None:
    """Write ``product`` of the first three arrays to ``out``; ``floor[k]`` is the least entry of ``right[k]``."""
    rows, depth = left.shape
    columns = right.shape[1]
    useful = np.empty(DEPTH_BLOCK, dtype=np.int64)
    out[:] = np.inf
    for start in range(0, depth, DEPTH_BLOCK):
        for i in range(rows):
            best, count = out[i], 0
            worst = best.max() if start else np.inf
            for k in range(start, min(start + DEPTH_BLOCK, depth)):
                # Rounding is monotone, so whatever is skipped could not have changed a bit of the result.
                if left[i, k] + middle[k] + floor[k] < worst:
                    useful[count] = k
                    count += 1
            fours = count // 4 * 4
            # Four terms at a time: one load and store of the result for eight operations.
            for at in range(0, fours, 4):
                k0, k1, k2, k3 = useful[at], useful[at + 1], useful[at + 2], useful[at + 3]
                a0, a1 = left[i, k0] + middle[k0], left[i, k1] + middle[k1]
                a2, a3 = left[i, k2] + middle[k2], left[i, k3] + middle[k3]
                b0, b1, b2, b3 = right[k0], right[k1], right[k2], right[k3]
                for j in range(columns):
                    # Written as selections: they compile to vector minima, min() does not.
                    u, v, w, x = a0 + b0[j], a1 + b1[j], a2 + b2[j], a3 + b3[j]
                    u = v if v < u else u
                    w = x if x < w else w
                    u = w if w < u else u
                    best[j] = u if u < best[j] else best[j]
            for at in range(fours, count):
                k = useful[at]
                a0, b0 = left[i, k] + middle[k], right[k]
                for j in range(columns):
                    u = a0 + b0[j]
                    best[j] = u if u < best[j] else best[j]


@kernel(lambda vector, table, _: 3e-7 * table.size, "void(float64[::1], float64[:,::1], float64[::1])")
def _fold_rows(vector: Floats, table: Floats, out: Floats) -> None:
    """Write ``fold_rows`` of the first two arrays to ``out``."""
    out[:] = np.inf
    for i in range(len(vector)):
        row, add = table[i], vector[i]
        for j in range(len(out)):
            u = add + row[j]
            out[j] = u if u < out[j] else out[j]


@kernel(lambda table, *_: 3e-7 * table.size, "void(float64[:,::1], float64[::1], float64[::1])")
def _fold_columns(table: Floats, vector: Floats, out: Floats) -> None:
    """Write ``fold_columns`` of the first two arrays to ``out``."""
    fours = len(vector) // 4 * 4
    for i in range(len(out)):
        row = table[i]
        # Four running minima, because a single one would depend on itself at every step.
        a = b = c = d = np.inf
        for j in range(0, fours, 4):
            u, v = vector[j] + row[j], vector[j + 1] + row[j + 1]
            w, x = vector[j + 2] + row[j + 2], vector[j + 3] + row[j + 3]
            a = u if u < a else a
            b = v if v < b else b
            c = w if w < c else c
            d = x if x < d else d
        for j in range(fours, len(vector)):
            u = vector[j] + row[j]
            a = u if u < a else a
        out[i] = min(min(a, b), min(c, d))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Return the threads that share large products."""
    return ThreadPoolExecutor(max_workers=_workers(), thread_name_prefix="minplus")


@functools.cache
def _workers() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def product(left: Floats, middle: Floats, right: Floats) -> Floats:
    """Return the (min,+) product ``out[i, j] = min over k of left[i, k] + middle[k] + right[k, j]``.

    Args:
        left: Shape (I, K), C-contiguous, without NaN and -inf, as the others.
        middle: Shape (K,).
        right: Shape (K, J), C-contiguous.

    Returns:
        Shape (I, J); ``inf`` where every term is (also when K is 0).

    Source:
        Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Eq. 2.
    """
    rows, columns = left.shape[0], right.shape[1]
    out, floor = np.empty((rows, columns)), np.zeros(len(middle))
    if len(middle) > DEPTH_BLOCK and rows * columns > 0:
        # The most promising terms first: after one block of them, most others are skipped.
        floor = right.min(axis=1)
        order = np.argsort(left.min(axis=0) + middle + floor, kind="stable")
        left, middle = np.take(left, order, axis=1), middle[order]
        right, floor = right[order], floor[order]
    sums = rows * columns * len(middle)
    count = min(rows, max(min(_workers(), sums // PER_THREAD), -(-sums // PER_JOB)))
    if count <= 1:
        _product(left, middle, right, floor, out)
        return out
    bounds = [rows * job // count for job in range(count + 1)]
    parts = [slice(low, high) for low, high in itertools.pairwise(bounds)]
    # Jobs that have not begun are cancelled where a signal interrupts this.
    list(_pool().map(lambda part: _product(left[part], middle, right, floor, out[part]), parts))
    return out


def fold_rows(vector: Floats, table: Floats) -> Floats:
    """Return ``out[j] = min over i of vector[i] + table[i, j]``; shapes (I,), (I, J) to (J,)."""
    out = np.empty(table.shape[1])
    _fold_rows(vector, table, out)
    return out


def fold_columns(table: Floats, vector: Floats) -> Floats:
    """Return ``out[i] = min over j of table[i, j] + vector[j]``; shapes (I, J), (J,) to (I,)."""
    out = np.empty(table.shape[0])
    _fold_columns(table, vector, out)
    return out
