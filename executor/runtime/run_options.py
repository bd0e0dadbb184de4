"""What a run is told beside its plan."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from executor.runtime.optimizer_spec import OptimizerSpec
from hwprofiles import ConfigError

__all__ = ["JOIN_BYTES", "RunOptions", "read_options", "write_options"]

JOIN_BYTES = 4 * 1024.0 * 1024.0
"""Gradients of several layers that have two replicas are summed as one buffer up to this size."""

MOST_THREADS = 1024
"""Of one rank: a slip beyond that ends in the middle of a run, when the system has no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a plan is run."""

    plan: str
    """Path of the plan file."""
    steps: int = 10
    """Training steps in all; a resumed run counts those before."""
    seed: int = 0
    """Of first values, data and dropout."""
    data: str = "generated"
    """As for ``executor.data.load_data``."""
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    overlap: bool = True
    """Send gradients and regions beside arithmetic; off: wait for each."""
    stand_in: bool = False
    """Let waits of the predicted length stand in for arithmetic, and for encoding and decoding."""
    real_codes: bool = False
    """With ``stand_in``: encode and decode all the same, random numbers."""
    device: str = "auto"
    """``auto``, ``cpu`` or ``cuda``."""
    threads: int = 0
    """Threads that a rank computes with; 0: the machine's cores, shared equally."""
    join_bytes: float = JOIN_BYTES
    """Gradients of several layers are summed as one buffer up to this size; see
    ``executor.program.buckets.longest_bytes``."""
    memory: bool = False
    """Count what the first iterations allocate, exactly; on a processor this slows them down."""
    checkpoint: str = ""
    """Folder for checkpoints; empty for none."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0: only after the last step."""
    resume: bool = False
    """Go on from the latest checkpoint in the folder."""
    out: str = ""
    """Folder for what rank 0 writes; empty for nothing."""
    timeout_s: float = 60.0
    """How long a message or a sum may keep a rank waiting."""

    def __post_init__(self) -> None:
        for name, low in (("steps", 1), ("threads", 0), ("checkpoint_every", 0), ("join_bytes", 0)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name} must be >= {low}, got {getattr(self, name)}")
        if self.threads > MOST_THREADS:
            raise ConfigError(f"threads must be <= {MOST_THREADS}, got {self.threads}")
        if not self.timeout_s > 0:
            raise ConfigError(f"timeout_s must be > 0, got {self.timeout_s}")
        if (self.resume or self.checkpoint_every) and not self.checkpoint:
            raise ConfigError("checkpoint must name a folder where resume or checkpoint_every is given, got none")
        if self.real_codes and not self.stand_in:
            raise ConfigError("real_codes must be left out without stand_in: nothing else encodes")
        if self.stand_in and self.checkpoint:
            raise ConfigError("checkpoint must be left out with stand_in: nothing is trained")

    @property
    def stand_in_codes(self) -> bool:
        """Whether waits stand in for encoding and decoding too."""
        return self.stand_in and not self.real_codes


def write_options(options: RunOptions, path: Path) -> None:
    """Write options for the ranks to read."""
    path.write_bytes(msgspec.json.encode(options))


def read_options(path: Path) -> RunOptions:
    """Read what ``write_options`` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=RunOptions)
