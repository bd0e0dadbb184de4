"""Measurements of all ranks, joined: as if all of them had lain in one place."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks import pool_of

from executor.measurement import gathered_tasks
from executor.measurement.gathered_tasks import gather_tasks
from executor.measurement.measured_run import JoinedTasks
from executor.program.recorder import RankMeasurement

RANKS, ITERATIONS, TASKS = 3, 7, 11
NAMES = ("start_s", "end_s", "sent_bytes")

pytestmark = pytest.mark.timeout(120)
ranks = pool_of(RANKS)


def times_of(rank):
    """Measurements of a rank, shape (iterations, 3, tasks): of a third of its tasks; the last task nobody measures."""
    generator = np.random.default_rng(rank)
    times = generator.random((ITERATIONS, 3, TASKS))
    times[generator.random(times.shape) < 2 / 3] = np.nan
    times[..., -1] = np.nan
    return times


def joined_at_once(every):
    """The three arrays from those of all ranks, shape (ranks, iterations, 3, tasks)."""
    start_s, end_s, sent = every[:, :, 0], every[:, :, 1], every[:, :, 2]
    known = ~np.isnan(sent).all(axis=0)
    return [np.fmax.reduce(start_s), np.fmax.reduce(end_s), np.where(known, np.nansum(sent, axis=0), np.nan)]


def check_equal(joined, expected):
    """To the last bit."""
    for name, values in zip(NAMES, expected, strict=True):
        np.testing.assert_array_equal(getattr(joined, name), values)


def test_ranks_added_piece_by_piece_are_joined_as_at_once():
    joined = JoinedTasks(ITERATIONS, TASKS)
    for rank in range(RANKS):
        for first in range(0, ITERATIONS, 2):
            joined.add(first, times_of(rank)[first : first + 2])

    check_equal(joined, joined_at_once(np.array([times_of(rank) for rank in range(RANKS)])))


def gathered(rank, chunk_bytes):
    """Gather with messages of so many bytes; return the arrays, and how often a piece was reported."""
    gathered_tasks._CHUNK_BYTES = chunk_bytes
    pieces = []
    own = [RankMeasurement(**dict(zip(NAMES, row, strict=True))) for row in times_of(rank)]
    joined = gather_tasks(own, 0.1 * rank, torch.device("cpu"), on_chunk=lambda: pieces.append(1))
    dist.barrier()
    return joined, len(pieces)


@pytest.mark.parametrize(("chunk_bytes", "pieces"), [(1, ITERATIONS), (2 * 3 * 8 * TASKS, 4), (2**20, 1)])
def test_gathered_measurements_are_those_of_all_ranks_on_one_clock(ranks, chunk_bytes, pieces):
    """In messages of one iteration, of two, and of all."""
    (joined, received), *others = ranks.run(gathered, chunk_bytes)

    every = np.array([times_of(rank) for rank in range(RANKS)])
    for rank in range(RANKS):
        every[rank, :, :2] += 0.1 * rank
    check_equal(joined, joined_at_once(every))
    assert (received, others) == ((RANKS - 1) * pieces, [(None, pieces)] * (RANKS - 1))
