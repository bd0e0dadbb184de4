"""Messages of a program: every transfer once, in one order for all ranks; and the rank's view of them."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import program_of, questions

from executor.program.messages import region_messages_of
from executor.program.rank_program import RankProgram
from executor.runtime.boxes import Box
from planner.lowering.program import KINDS
from planner.memory.cpu_backend import MESSAGE_JOIN_BYTES

pytestmark = pytest.mark.timeout(120)
SMALL = ("lenet5", "conv1d", "alexnet-cifar")
questions_of_small = questions(models=SMALL, most_devices=6)


def programs():
    return questions_of_small.map(lambda question: program_of(*question))


def transfers_of(program):
    return np.flatnonzero(program.kind == KINDS.index("transfer")).tolist()


@settings(max_examples=12)
@given(program=programs(), join_bytes=st.sampled_from([0, 1000, MESSAGE_JOIN_BYTES, 2**40]))
def test_every_transfer_travels_once_as_the_program_says(program, join_bytes):
    messages = region_messages_of(program, join_bytes=join_bytes)
    assert Counter(task for message in messages for task in message.tasks) == Counter(transfers_of(program))
    for message in messages:
        for task, box in zip(message.tasks, message.boxes, strict=True):
            dims = len(box.low)
            assert (message.source, message.target) == (program.device[task], program.peer[task])
            assert box == Box(tuple(program.region_low[task, :dims]), tuple(program.region_high[task, :dims]))
            assert box.elements * program.graph.element_bytes == program.size_bytes[task]
        assert message.elements * program.graph.element_bytes == program.size_bytes[list(message.tasks)].sum()


@settings(max_examples=12)
@given(program=programs(), join_bytes=st.sampled_from([0, 1000, MESSAGE_JOIN_BYTES, 2**40]))
def test_regions_of_one_tensor_and_phase_are_joined_up_to_the_size(program, join_bytes):
    rows = {}
    for message in region_messages_of(program, join_bytes=join_bytes):
        tasks = list(message.tasks)
        assert len(set(program.layer[tasks])) == len(set(program.backward[tasks])) == 1
        size = program.size_bytes[tasks].sum()
        assert len(tasks) == 1 or size <= join_bytes
        key = (message.phase, program.layer[tasks[0]], message.source, message.target)
        rows.setdefault(key, []).append((size, program.size_bytes[tasks[0]]))
    for sizes in rows.values():
        for (size, _), (_, first) in pairwise(sizes):
            assert size + first > join_bytes  # else the second message's first region would have gone with the first


@settings(max_examples=12)
@given(program=programs())
def test_a_phase_lies_between_what_a_message_waits_for_and_what_waits_for_it(program):
    phase = {task: message.phase for message in region_messages_of(program) for task in message.tasks}
    for task in range(program.size):
        for before in program.after[program.after_start[task] : program.after_start[task + 1]].tolist():
            if task in phase:
                assert program.group[before] <= phase[task] < program.group[task]
            if before in phase:
                assert phase[before] < program.group[task]


@settings(max_examples=12)
@given(program=programs())
def test_both_ends_of_a_connection_see_one_order(program):
    """Neither tags nor sizes are needed to tell messages apart, as NCCL wants it."""
    messages = region_messages_of(program)
    ranks = range(1 + max(int(space.devices.max()) for space in program.spaces))
    views = [RankProgram(program, rank, messages) for rank in ranks]
    for a in ranks:
        for b in ranks:
            sent = [
                m
                for phase in sorted(views[a].messages.outgoing)
                for m in views[a].messages.outgoing[phase]
                if m.target == b
            ]
            taken = [
                m
                for phase in sorted(views[b].messages.incoming)
                for m in views[b].messages.incoming[phase]
                if m.source == a
            ]
            assert sent == taken
            assert [message.phase for message in sent] == sorted(message.phase for message in sent)
    assert sum(len(row) for view in views for row in view.messages.outgoing.values()) == len(messages)


@settings(max_examples=12)
@given(program=programs())
def test_an_input_is_made_of_its_own_part_and_of_what_arrives(program):
    """Own region and messages cover every input exactly."""
    messages = region_messages_of(program)
    for rank in range(1 + max(int(space.devices.max()) for space in program.spaces)):
        view = RankProgram(program, rank, messages)
        seen = {edge: np.zeros(row.box.shape, dtype=np.int64) for edge, row in view.inputs.items()}
        for edge, row in view.inputs.items():
            if row.own.elements:
                seen[edge][row.own.within(row.box)] += 1
        for rows in view.messages.incoming.values():
            for message in rows:
                for task, box in zip(message.tasks, message.boxes, strict=True):
                    if not program.backward[task]:
                        edge = view.messages.input_key[task]
                        seen[edge][box.within(view.inputs[edge].box)] += 1
        assert all((count == 1).all() for count in seen.values())
