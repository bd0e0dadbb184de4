"""Rows of sub-batches: together they are the mini-batch, each sample once, and parts keep their own."""

import pytest

from executor.runtime.boxes import Box
from executor.runtime.samples import BatchSamples


@pytest.mark.parametrize(("batch", "parts", "pieces"), [(24, 1, 1), (24, 3, 1), (24, 3, 4), (24, 12, 2), (8, 2, 4)])
def test_sub_batches_share_out_the_mini_batch(batch, parts, pieces):
    size, seen = batch // parts, []
    for sub_batch in range(parts):
        samples = BatchSamples(batch=batch, micro_batches=parts, shards=pieces, micro_batch=sub_batch)
        rows = [row for low, high in samples.spans(0, size) for row in range(low, high)]
        one_by_one = [row for i in range(size) for low, high in samples.spans(i, i + 1) for row in range(low, high)]
        assert rows == one_by_one
        if parts > 1:  # each piece gives the sub-batch its share, in order
            share = size // pieces
            for piece in range(pieces):
                first = piece * batch // pieces + sub_batch * share
                assert rows[piece * share : (piece + 1) * share] == list(range(first, first + share))
        seen += rows
    assert sorted(seen) == list(range(batch))


def test_boxes_keep_the_other_dimensions():
    samples = BatchSamples(batch=8, micro_batches=2, shards=2, micro_batch=1)
    assert samples.boxes(Box((1, 3), (3, 5))) == [Box((3, 3), (4, 5)), Box((6, 3), (7, 5))]
