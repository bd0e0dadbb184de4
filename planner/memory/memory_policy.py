"""Memory policy of a run: what is kept beside the tensors of the network, by optimizer and back end."""

from dataclasses import dataclass

from groundwork.errors import ConfigError
from planner.cost.update_traffic import OPTIMIZERS
from planner.memory.backend_memory import BackendMemory, GpuMemory
from planner.memory.cpu_backend import CpuMemory

_STATE_BYTES = 4
"""Least bytes of an element of optimizer state."""
_CPU, _GPU = CpuMemory(), GpuMemory()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPolicy:
    """Memory that a run keeps beside the tensors of the network."""

    optimizer: str = "momentum"
    """One of ``OPTIMIZERS``."""
    host: bool = False
    """True if ranks compute on processors: then every message has a buffer of its own that is allocated for the whole
    run, and convolutions copy tensors into layouts of their own.  The workspace of a GPU's libraries is left out."""

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise ConfigError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.optimizer!r}")

    @property
    def states(self) -> int:
        """Elements of optimizer state for every parameter."""
        return OPTIMIZERS[self.optimizer]

    def states_of(self, element_bytes: int) -> float:
        """Return the bytes of optimizer state for every byte of a parameter.

        States have at least four bytes; smaller parameters have a copy of four bytes among them, the master weights.

        Args:
            element_bytes: Bytes of an element of a parameter.
        """
        if element_bytes >= _STATE_BYTES:
            return float(self.states)
        return (self.states + 1) * _STATE_BYTES / element_bytes

    @property
    def backend(self) -> BackendMemory:
        """Memory of the back end on which ranks compute."""
        return _CPU if self.host else _GPU


MOMENTUM = MemoryPolicy()
"""SGD with momentum, on GPUs."""
