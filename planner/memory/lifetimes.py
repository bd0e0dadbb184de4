"""Every buffer of a program: contents, device, size, allocation and release.

One account serves two measures of time: seconds of a replay, for the memory over time, and program order, for the
estimate before any replay.  It follows the executor: a device runs its tasks in program order and releases a buffer
when its last reader is done.
"""

from functools import lru_cache

from groundwork.array_types import Floats
from planner.lowering.program import Program
from planner.lowering.unit_times import UnitTimes
from planner.memory.activation_lifetimes import activations
from planner.memory.buffer_account import MemoryAccount
from planner.memory.buffers import Buffers
from planner.memory.gradient_lifetimes import activation_gradients
from planner.memory.layer_lifetimes import layer_buffers
from planner.memory.memory_policy import MemoryPolicy
from planner.memory.message_lifetimes import collective_buffers, compressed_messages, messages
from planner.memory.parameter_lifetimes import parameter_gradients, persistent_buffers
from planner.memory.storage_lifetimes import divided_storage


@lru_cache(maxsize=2)
def _account_of(program: Program, memory_policy: MemoryPolicy) -> MemoryAccount:
    """Return the account of a program, which serves the estimate and the replay that follows it."""
    return MemoryAccount(program, memory_policy)


class BufferLifetimes:
    """Lifetimes of the buffers of a program: which task allocates each, and which is the last to read it.

    Args:
        program: The program.
        memory_policy: What the run keeps beside the tensors of the network; None: the state of the program's optimizer.
    """

    def __init__(self, program: Program, memory_policy: MemoryPolicy | None = None) -> None:
        policy = memory_policy or MemoryPolicy(optimizer=program.conditions.optimizer)
        self._account = _account_of(program, policy)

    def persistent(self) -> Buffers:
        """Return the buffers that are allocated for the whole run."""
        return self._lowered(persistent_buffers(self._account))

    def transient(self, start_s: Floats, end_s: Floats) -> Buffers:
        """Return the buffers that one iteration allocates and releases.

        Args:
            start_s: Shape (T,): start of the program's tasks, in seconds or in any order of time.
            end_s: Shape (T,): their end.
        """
        account, times = self._account, UnitTimes(self._account.program, start_s, end_s)
        kinds = (
            activations,
            activation_gradients,
            messages,
            collective_buffers,
            compressed_messages,
            parameter_gradients,
            divided_storage,
            layer_buffers,
        )
        return self._lowered(Buffers.joined(row for rows in kinds for row in rows(account, times)))

    def _lowered(self, buffers: Buffers) -> Buffers:
        """Return the buffers of devices that have tasks, of which all are known."""
        classes = self._account.program.classes
        return buffers if classes is None else buffers.take(classes.lowered[buffers.device])
