"""Messages over gloo, iteration after iteration, and when they left and arrived."""

import time

import numpy as np
import pytest
import torch
from plans import cluster_of, program_of
from ranks import Ranks

from executor.communication.transport import GlooTransport
from executor.program.messages import region_messages_of
from executor.program.rank_program import RankProgram
from executor.program.recorder import Recorder
from executor.runtime.devices import CpuDevice
from planner.cost.cost_model import CostModel
from planner.lowering.program import KINDS
from planner.models.registry import load_model
from planner.strategies.named_strategies import named_strategy

pytestmark = pytest.mark.timeout(120)
ITERATIONS = 4


@pytest.fixture(scope="module")
def ranks():
    pool = Ranks(2)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def program():
    graph = load_model("lenet5", batch=6)
    return program_of(CostModel(graph, cluster_of("titanx-4", 2)), named_strategy("model", graph, 2))


def content(message, iteration):
    return torch.arange(message.elements, dtype=torch.float32) + 1000.0 * message.tasks[0] + 7.0 * iteration


def iterate(rank, program):
    """Everything sent and taken; rank 1 dawdles, so that messages arrive iterations before it looks at them."""
    view = RankProgram(program, rank, region_messages_of(program))
    recorder = Recorder(program.size, CpuDevice())
    transport = GlooTransport(view, iterations=ITERATIONS, dtype=torch.float32, recorder=recorder, timeout_s=20.0)
    found = []
    for iteration in range(ITERATIONS):
        time.sleep(0.05 * rank)
        for phase in sorted(set(view.messages.outgoing) | set(view.messages.incoming)):
            incoming = view.messages.incoming.get(phase, [])
            outgoing = [(message, content(message, iteration)) for message in view.messages.outgoing.get(phase, [])]
            transport.start_phase(outgoing, incoming)
            for message in incoming:
                assert torch.equal(transport.receive(message), content(message, iteration))
                transport.release(message)
        transport.end_iteration()
        found.append(recorder.finish())
    transport.close()
    return found


def test_every_iteration_brings_and_measures_its_own_messages(ranks, program):
    answers = ranks.run(iterate, program)
    transfers = program.kind == KINDS.index("transfer")
    for rank, rows in enumerate(answers):
        sends, takes = transfers & (program.device == rank), transfers & (program.peer == rank)
        assert sends.any()
        assert takes.any()
        for row in rows:
            np.testing.assert_array_equal(np.isfinite(row.start_s), sends)
            np.testing.assert_array_equal(np.isfinite(row.end_s), takes)
            np.testing.assert_array_equal(row.sent_bytes[sends], program.size_bytes[sends])
    for rows in zip(*answers, strict=True):  # processes of one machine share the clock
        start_s, end_s = (np.fmax(*(getattr(row, name) for row in rows)) for name in ("start_s", "end_s"))
        assert (end_s[transfers] > start_s[transfers]).all()


def wait_in_vain(rank, program):
    """What a rank says of a message that never comes, and how long it waited for it."""
    view = RankProgram(program, rank, region_messages_of(program))
    recorder = Recorder(program.size, CpuDevice())
    transport = GlooTransport(view, iterations=1, dtype=torch.float32, recorder=recorder, timeout_s=0.3)
    message = view.messages.incoming[min(view.messages.incoming)][0]
    begin = time.perf_counter()
    try:
        transport.receive(message)
    except TimeoutError as error:
        return str(error), time.perf_counter() - begin
    return None


def test_a_message_that_never_comes_ends_the_wait(program):
    pool = Ranks(2)
    for rank, (text, waited_s) in enumerate(pool.run(wait_in_vain, program)):
        assert text == f"rank {1 - rank} sent nothing within 0.3 s"
        assert 0.3 <= waited_s < 5
    pool.close(kill=True)  # its receives are still posted


class Clock(CpuDevice):
    """Counts instead of telling the time."""

    def __init__(self):
        self.now = 0.0

    def mark(self):
        self.now += 1.0
        return self.now


def test_what_arrives_before_its_iteration_is_counted_in_it():
    recorder = Recorder(4, Clock())
    recorder.start(0)  # 1
    recorder.end(3, iteration=1)  # 2
    recorder.end(0)  # 3
    recorder.end(2, iteration=2)  # 4
    recorder.sent(0, 8.0)
    recorder.sent(0, 16.0)
    nothing = float("nan")
    first = recorder.finish()
    np.testing.assert_array_equal(first.start_s, [1, nothing, nothing, nothing])
    np.testing.assert_array_equal(first.end_s, [3, nothing, nothing, nothing])
    np.testing.assert_array_equal(first.sent_bytes, [24, nothing, nothing, nothing])
    recorder.end(0)  # 5
    recorder.start(1)  # 6
    second = recorder.finish()
    np.testing.assert_array_equal(second.start_s, [nothing, 6, nothing, nothing])
    np.testing.assert_array_equal(second.end_s, [5, nothing, nothing, 2])
    np.testing.assert_array_equal(second.sent_bytes, [nothing] * 4)
    np.testing.assert_array_equal(recorder.finish().end_s, [nothing, nothing, 4, nothing])
