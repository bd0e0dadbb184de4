"""Boxes of an interval of a tensor's elements, and frames of outputs, against the elements one by one."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from plans import cluster_of

from executor.program.rank_parts import RankParts
from executor.program.rank_storage import boxes_of
from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.models.registry import load_model
from planner.strategies.micro_batches import MicroBatching
from planner.strategies.named_strategies import named_strategy, spaces_of

pytestmark = pytest.mark.timeout(120)


@given(shape=st.lists(st.integers(1, 4), max_size=4), data=st.data())
def test_boxes_hold_each_element_once_in_order(shape, data):
    elements = np.arange(math.prod(shape)).reshape(shape)
    low = data.draw(st.integers(0, elements.size))
    high = data.draw(st.integers(low, elements.size))

    found = []
    for box, (first, last) in boxes_of(shape, (low, high)):
        inside = elements[tuple(slice(a, b) for a, b in zip(box.low, box.high, strict=True))].ravel().tolist()
        assert inside == list(range(first, last)) != []
        found += inside

    assert found == list(range(low, high))


@pytest.mark.parametrize("first", [0, 3, 6])
def test_a_frame_holds_the_rows_of_one_micro_batch_after_another(first):
    """Rows of micro-batch m lie m times as many rows on; where both layers compute alike, there are no other rows."""
    graph, count, parts = load_model("lenet5", batch=12), 2, 3
    spaces = spaces_of(graph, named_strategy("data", graph, count), count)
    program = lower(
        CostModel(graph, cluster_of("titanx-4", count)), spaces, micro_batching=MicroBatching(parts=parts, first=first)
    )
    for rank in range(count):
        view = RankParts(program, rank)
        for edge in graph.edges:
            own = view.held_for(edge)
            rows = own.high[0] - own.low[0]
            for m in range(parts if edge.consumer >= first else 1):
                frame = view.frame((edge, m))
                cut = edge.producer < first <= edge.consumer
                assert rows == 12 // count // (parts if edge.consumer >= first else 1)
                assert frame.low[0] == own.low[0] - (m * rows if cut else 0)
                assert frame.high[0] - frame.low[0] == rows * (parts if cut else 1)
                assert (frame.low[1:], frame.high[1:]) == (own.low[1:], own.high[1:])
