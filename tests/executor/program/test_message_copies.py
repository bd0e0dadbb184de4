"""Which messages are copies of what they send: foretold from the program, and as torch makes them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from plans import program_of, questions

from executor.program.messages import region_messages_of
from executor.program.rank_program import RankProgram
from planner.lowering.program import KINDS
from planner.lowering.send_phases import phases
from planner.memory.memory_policy import MemoryPolicy
from planner.memory.message_copies import are_copies
from planner.memory.part_memory import part_memories

pytestmark = pytest.mark.timeout(120)


def is_copied(view, message, parts):
    """Whether torch copies to send a message: of zeros that lie as the tensor does that it is cut out of."""
    pieces = []
    for task, box in zip(message.tasks, message.boxes, strict=True):
        if view.program.backward[task]:
            key = view.messages.input_key[task]
            whole, last = view.inputs[key].box, parts[key[0].consumer].gradient_channels_last
        else:
            whole, last = view.parts.frame(view.messages.input_key[task]), parts[view.program.layer[task]].channels_last
        layout = torch.channels_last if last and len(whole.shape) == 4 else torch.contiguous_format
        tensor = torch.zeros(whole.shape).contiguous(memory_format=layout)
        pieces.append(tensor[box.within(whole)].reshape(-1))
    content = torch.cat(pieces) if len(pieces) > 1 else pieces[0].contiguous()
    return len(pieces) > 1 or content.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr()


@given(questions(models=("lenet5", "alexnet-cifar"), most_devices=4))
@settings(max_examples=10, deadline=None)
def test_copies_are_those_that_torch_makes(question):
    program = program_of(*question)
    parts = part_memories(program, MemoryPolicy(host=True))
    transfers = np.flatnonzero(program.kind == KINDS.index("transfer"))
    copied = dict(zip(transfers.tolist(), are_copies(program, parts, transfers).tolist(), strict=True))
    messages = region_messages_of(program)
    views = [RankProgram(program, rank, messages) for rank in range(len(program.cluster.devices))]
    for message in messages:
        expected = is_copied(views[message.source], message, parts)
        assert {copied[task] for task in message.tasks} == {expected}
        assert {int(phases(program)[task]) for task in message.tasks} == {message.phase}
