"""Every buffer of a program: what it holds, where, from when on and until when.

One account serves two readings of time: the replay's, for the memory over time, and program order, for the estimate
before any replay.  It says what the executor does: a device runs its tasks in program order and frees what nobody
reads any more.
"""

from hwprofiles import Floats
from planner.lowering import Program, UnitTimes
from planner.memory.activation_lifetimes import activations
from planner.memory.buffer_account import Account, parameter_bytes, residuals
from planner.memory.buffers import Buffers
from planner.memory.gradient_lifetimes import activation_gradients
from planner.memory.layer_lifetimes import layers
from planner.memory.memory_policy import MemoryPolicy
from planner.memory.message_lifetimes import codes, messages
from planner.memory.parameter_lifetimes import kept, parameter_gradients

__all__ = ["BufferLifetimes", "parameter_bytes", "residuals"]


class BufferLifetimes:
    """What gives birth to the buffers of a program, and what is the last to need them.

    Args:
        program: What runs.
        keeping: What is kept beside the tensors of the network.
    """

    def __init__(self, program: Program, memory_policy: MemoryPolicy) -> None:
        self._account = Account(program, memory_policy)

    def kept(self) -> Buffers:
        """What is always there."""
        return kept(self._account)

    def passing(self, start_s: Floats, end_s: Floats) -> Buffers:
        """What comes and goes in one iteration.

        Args:
            start_s, end_s: Shape (T,): when its tasks ran, in seconds or in any order of time.
        """
        account, times = self._account, UnitTimes(self._account.program, start_s, end_s)
        parts = (activations, activation_gradients, messages, codes, parameter_gradients, layers)
        return Buffers.of(row for rows in parts for row in rows(account, times))
