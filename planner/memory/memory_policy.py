"""Memory policy of a run: what is kept beside the tensors of the network, by optimizer and back end."""

from dataclasses import dataclass

from groundwork.errors import ConfigError
from planner.cost.update_traffic import OPTIMIZERS
from planner.graph.type_roles import TYPE_BYTES, DataTypes
from planner.memory.backend_memory import BackendMemory, GpuMemory
from planner.memory.cpu_backend import CpuMemory

_GPU = GpuMemory()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPolicy:
    """Memory that a run keeps beside the tensors of the network."""

    optimizer: str = "momentum"
    """One of ``OPTIMIZERS``."""
    host: bool = False
    """True if ranks compute on processors: then every message has a buffer of its own that is allocated for the whole
    run, and convolutions copy tensors into layouts of their own.  The workspace of a GPU's libraries is left out."""
    block: int = 16
    """Channels that the library of processors keeps together: 16 where they have AVX-512, else 8."""

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise ConfigError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.optimizer!r}")

    @property
    def states(self) -> int:
        """Elements of optimizer state for every parameter."""
        return OPTIMIZERS[self.optimizer]

    def kept_bytes(self, types: DataTypes, *, divided: bool) -> tuple[int, int]:
        """Return the bytes of a parameter, and of its optimizer's state with the copy that is updated, if there is one.

        Args:
            types: Data types by role.
            divided: Whether replicas divide the parameter between its uses.
        """
        parameter, copy = types.at_rest(divided=divided)
        return TYPE_BYTES[parameter], self.states * TYPE_BYTES[types.state] + (TYPE_BYTES[copy] if copy else 0)

    @property
    def backend(self) -> BackendMemory:
        """Memory of the back end on which ranks compute."""
        return CpuMemory(self.block) if self.host else _GPU


MOMENTUM = MemoryPolicy()
"""SGD with momentum, on GPUs."""
