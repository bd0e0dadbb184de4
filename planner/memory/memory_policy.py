"""Memory policy of a run: what is kept beside the tensors of the network, by optimizer and back end."""

from dataclasses import dataclass

from hwprofiles import ConfigError
from planner.memory.backend_memory import BackendMemory, GpuMemory
from planner.memory.cpu_backend import CpuMemory

__all__ = ["MOMENTUM", "OPTIMIZERS", "MemoryPolicy"]

OPTIMIZERS = {"sgd": 0, "momentum": 1, "adam": 2}
"""Elements of state that an optimizer keeps for every parameter, beside its value and its gradient."""
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

    @property
    def backend(self) -> BackendMemory:
        """Memory of the back end on which ranks compute."""
        return _CPU if self.host else _GPU


MOMENTUM = MemoryPolicy()
"""SGD with momentum, on GPUs."""
