"""When devices send, and when they forget what they sent: counted by hand."""

import numpy as np
from plans import cluster_of

from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.lowering.send_phases import SendPhases, phases, program_order
from planner.models.builder import ModelBuilder
from planner.strategies.named_strategies import spaces_of


def program():
    """On two devices: the second has next, the first all other layers."""
    net = ModelBuilder("sent", batch=4, image=(1, 4, 4))
    net.conv(2, 1, name="conv")
    net.conv(2, 1, name="next")
    net.linear(3, name="fc")
    net.loss()
    graph = net.build()
    spread = {
        layer.name: Configuration(dict.fromkeys(layer.parallel_dims, 1), (int(layer.name == "next"),))
        for layer in graph.layers
    }
    return lower(CostModel(graph, cluster_of("titanx-4", 2)), spaces_of(graph, spread, 2))


def task(rows, kind, layer):
    names = [row.name for row in rows.graph.layers]
    (found,) = np.flatnonzero((rows.kind == KINDS.index(kind)) & (rows.layer == names.index(layer)))
    return int(found)


def sent(rows, layer, *, backward):
    names = [row.name for row in rows.graph.layers]
    of = (rows.kind == KINDS.index("transfer")) & (rows.layer == names.index(layer)) & (rows.backward == backward)
    return np.flatnonzero(of)


def test_messages_leave_as_soon_as_they_are_made():
    """The gradient of what next reads leaves before next's weight gradient, though it comes after it in the program."""
    rows = program()
    start, end = program_order(rows)
    gradient = sent(rows, "conv", backward=True)
    made, after = task(rows, "activation_gradient", "next"), task(rows, "weight_gradient", "next")
    assert made < after < gradient[0]
    assert end[made] < start[gradient[0]] < end[gradient[0]] < start[after]
    assert phases(rows)[gradient].tolist() == [rows.group[made]]
    assert (phases(rows)[rows.is_compute] == -1).all()


def test_what_was_sent_is_forgotten_at_the_next_exchange():
    """Which is as a device sends or begins to expect something, with at least one task between."""
    rows = program()
    departures = SendPhases(rows)
    _, end = program_order(rows)
    first, answer = sent(rows, "conv", backward=False), sent(rows, "next", backward=False)
    assert departures.before(first, rows.device[first]).tolist() == [task(rows, "forward", "conv")]
    # the first device computes nothing more before it expects next's output; then fc and the loss, forward and back
    assert departures.before(answer, rows.peer[answer]).tolist() == [task(rows, "forward", "conv")]
    assert departures.noticed_s(first, end).tolist() == [end[task(rows, "activation_gradient", "fc")]]
    # next's device sends its answer, and then the gradient of what it read
    assert departures.noticed_s(answer, end).tolist() == [end[task(rows, "activation_gradient", "next")]]
    # the last to be sent is there until the iteration ends, with next's update
    last = sent(rows, "conv", backward=True)
    assert departures.noticed_s(last, end).tolist() == [end[task(rows, "update", "next")]]


def test_a_slow_message_is_kept_longer():
    """One that leaves after the next exchange is forgotten at the one after that: as conv's gradient is expected."""
    rows = program()
    _, end = program_order(rows)
    first = sent(rows, "conv", backward=False)
    slow = end.copy()
    slow[first] = end[task(rows, "activation_gradient", "fc")] + 0.1
    assert SendPhases(rows).noticed_s(first, slow).tolist() == [end[task(rows, "weight_gradient", "fc")]]
