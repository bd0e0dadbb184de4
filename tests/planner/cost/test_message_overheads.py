"""Overheads of messages: closed forms of what they take from arithmetic, and that Eq. 1 knows nothing of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import cluster_of, program_of

from groundwork.errors import ConfigError
from hwprofiles.devices.device import MessageOverhead
from planner.cost.cost_model import CostModel
from planner.lowering.program import KINDS
from planner.models.registry import load_model
from planner.simulation.execution_models import build_program_graph
from planner.simulation.message_overhead_use import message_overheads_of
from planner.simulation.program_replay import replay
from planner.strategies.named_strategies import named_strategy
from simulator.engines.engine import simulate

ENGINES = ["compiled", "simpy"]


def lowered(strategy, count=2, *, model="lenet5", batch=16, gradient_sync="ring", **overhead):
    """A program on devices whose own processor moves messages."""
    machines = cluster_of("titanx-4", count)
    row = MessageOverhead(**overhead)
    machines = machines.with_devices([replace(device, message_overhead=row) for device in machines.devices])
    graph = load_model(model, batch=batch)
    return program_of(CostModel(graph, machines, gradient_sync=gradient_sync), named_strategy(strategy, graph, count))


def arithmetic(program):
    """The task graph, and by task and device the use of its arithmetic."""
    graph, links, count = build_program_graph(program).graph, len(program.cluster.links), len(program.cluster.devices)
    owner, resource = np.repeat(np.arange(graph.size), np.diff(graph.use_start)), graph.use_resource - links
    mine = (resource >= 0) & (resource < count)
    used = np.zeros((graph.size, count))
    np.add.at(used, (owner[mine], resource[mine]), graph.use_weight[mine])
    return graph, used * graph.work[:, None]


def test_a_message_takes_both_ends_by_its_bytes_and_by_itself():
    program = lowered("model", message_s=2e-4, byte_s=3e-9)
    sends = np.flatnonzero(program.kind == KINDS.index("transfer"))
    _, used = arithmetic(program)
    assert len(sends)
    for task in sends:
        expected = 2e-4 + 3e-9 * program.size_bytes[task]
        assert used[task, program.device[task]] == pytest.approx(expected, rel=1e-12)
        assert used[task, program.peer[task]] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_ring_sends_takes_and_adds(count):
    """Every device sends and takes 2 (p - 1) / p of the buffer in as many messages, and adds (p - 1) / p of it."""
    program = lowered("data", count, batch=12, message_s=1e-5, byte_s=2e-9, add_byte_s=5e-9)
    _, used = arithmetic(program)
    assert program.collectives
    for task, collective in program.collectives.items():
        share = (count - 1) / count * collective.buffer_bytes
        expected = 2 * 2 * (count - 1) * 1e-5 + 2 * 2 * share * 2e-9 + share * 5e-9
        np.testing.assert_allclose(used[task], expected, rtol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_message_is_no_faster_than_the_processors_that_move_it(engine):
    program = lowered("model", byte_s=1e-6)
    schedule = simulate(build_program_graph(program).graph, engine=engine)
    sends = program.kind == KINDS.index("transfer")
    lasted = (schedule.end_s - schedule.start_s)[sends]
    assert (lasted >= 1e-6 * program.size_bytes[sends] * (1 - 1e-9)).all()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("strategy", ["data", "model", "spatial"])
def test_devices_do_all_arithmetic_and_all_that_messages_need(strategy, engine):
    """Work is conserved: no device is done before the sum of both, nor do messages come for free."""
    program = lowered(strategy, byte_s=2e-8, message_s=1e-5, add_byte_s=1e-8)
    graph, used = arithmetic(program)
    busy_s = used.sum(axis=0).max()
    plain_s = simulate(build_program_graph(lowered(strategy)).graph, engine=engine).makespan_s
    makespan_s = simulate(graph, engine=engine).makespan_s
    assert makespan_s >= max(busy_s, plain_s) * (1 - 1e-9)
    assert makespan_s > plain_s


def test_arithmetic_that_a_message_meets_ends_later_by_its_overhead():
    """What a device computes and what its sums take meanwhile fit in the time from its first task to its last."""
    program = lowered("data", byte_s=1e-9)
    graph, used = arithmetic(program)
    schedule = simulate(graph)
    computing = program.is_compute & (program.device == 0)
    first, last = schedule.start_s[computing].min(), schedule.end_s[computing].max()
    inside = [t for t in program.collectives if schedule.start_s[t] >= first and schedule.end_s[t] <= last]
    assert inside
    idle_s = (last - first) - used[computing, 0].sum() - used[inside, 0].sum()
    assert idle_s >= -1e-9
    # what is not arithmetic or messages is waiting for the sums that end last
    assert idle_s <= sum(schedule.end_s[t] - schedule.start_s[t] for t in program.collectives if t not in inside) + 1e-9


OVERHEADS = st.sampled_from([0.0, 1e-10, 3e-9, 1e-7, 1e-5])


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(["data", "model", "owt", "spatial"]),
    st.builds(MessageOverhead, message_s=OVERHEADS, byte_s=OVERHEADS, add_byte_s=OVERHEADS),
)
def test_engines_agree_and_other_readings_stay(strategy, overhead):
    values = {name: getattr(overhead, name) for name in ("message_s", "byte_s", "add_byte_s")}
    program, plain = lowered(strategy, **values), lowered(strategy)
    for reading in ({"contention": False}, {"contention": False, "overlap": False}):
        assert replay(program, **reading).iteration_s == replay(plain, **reading).iteration_s
    compiled, clear = (simulate(build_program_graph(program).graph, engine=engine) for engine in ENGINES)
    np.testing.assert_allclose(compiled.end_s, clear.end_s, rtol=1e-9)


@pytest.mark.parametrize("field", ["message_s", "byte_s", "add_byte_s"])
@pytest.mark.parametrize("value", [-1e-9, float("nan"), float("inf")])
def test_what_no_overhead_can_be(field, value):
    with pytest.raises(ConfigError, match=rf"MessageOverhead\.{field} must be finite and >= 0 s"):
        MessageOverhead(**{field: value})


def test_messages_go_before_arithmetic_only_where_processors_move_them():
    """Each kind keeps its order; the last message goes before the first of all arithmetic."""
    priority, computes = np.array([3, 0, 5, 2, 5]), np.array([True, False, True, False, False])
    moved, plain = (message_overheads_of(lowered("model", byte_s=byte_s).cluster) for byte_s in (1e-9, 0.0))
    found = moved.priority(priority, computes)

    assert found[~computes].min() > found[computes].max()
    for kind in (computes, ~computes):
        np.testing.assert_array_equal(np.diff(found[kind]), np.diff(priority[kind]))
    np.testing.assert_array_equal(plain.priority(priority, computes), priority)
    assert len(moved.priority(priority[:0], computes[:0])) == 0
