"""Devices: accelerators with their memory, and what they are beside their compute profile."""

import math
from dataclasses import asdict, astuple, dataclass, field

from groundwork.errors import ConfigError
from groundwork.units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOverhead:
    """The time of a device's processor that messages take: none where network cards and copy engines move them.

    Source:
        The overhead ``o`` of LogP (Culler et al., PPoPP 1993), for every byte as well: Kielmann et al., "Fast
        Measurement of LogP Parameters for Message Passing Platforms" (2000), whose o_s and o_r depend on the size.
    """

    message_s: float = 0.0
    """Time for each message, at each of its ends."""
    byte_s: float = 0.0
    """Time for each byte of a message, at each of its ends."""
    add_byte_s: float = 0.0
    """Time for each byte that is received and added to data of the device."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 <= value < math.inf:
                raise ConfigError(f"MessageOverhead.{name} must be finite and >= 0 s, got {value!r}")

    def __bool__(self) -> bool:
        return any(astuple(self))


_MOST_FIXED = 0.1
"""Largest share of the memory that the fixed part takes: devices of a few MiB, which only questions have, would
have nothing left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReserve:
    """What a device's memory holds beside the tensors that the memory account knows; nothing unless given."""

    fixed_bytes: float = 0.0
    """Context, kernels, workspaces and communication buffers, which do not depend on the size of the memory."""
    share: float = 0.0
    """Share of the memory that the driver keeps, and that the allocator loses to fragmentation."""

    def __post_init__(self) -> None:
        if not 0 <= self.fixed_bytes < math.inf:
            raise ConfigError(f"MemoryReserve.fixed_bytes must be finite and >= 0 B, got {self.fixed_bytes!r}")
        if not 0 <= self.share <= 0.5:
            raise ConfigError(f"MemoryReserve.share must be >= 0 and <= 0.5, got {self.share!r}")

    def usable_bytes(self, memory_bytes: float) -> float:
        """Return what is left of a memory of a nominal size in bytes."""
        return memory_bytes * (1 - self.share) - min(self.fixed_bytes, _MOST_FIXED * memory_bytes)


GPU_RESERVE = MemoryReserve(fixed_bytes=0.75 * GIB, share=0.04)
"""The reserve of a GPU for which its cluster gives no other; sources in ``docs/memory.md``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEngines:
    """The numbers of copy engines of a device, by kind; None stands for as many as its links carry.

    Source:
        ``asyncEngineCount`` of ``cudaDeviceProp``, CUDA Runtime API: with 1 a device copies in one direction while it
        computes, with 2 in both.  The CUDA sample ``deviceQuery`` prints it of any device.
    """

    total: int | None = None
    """Engines for copies of every kind together, as ``asyncEngineCount`` counts them."""
    host_to_device: int | None = None
    device_to_host: int | None = None
    peer: int | None = None

    def __post_init__(self) -> None:
        for kind, count in self.declared.items():
            if count < 1:
                raise ConfigError(f"CopyEngines.{kind} must be >= 1, got {count}")

    @property
    def declared(self) -> dict[str, int]:
        """Number of engines of each kind that has one."""
        return {kind: count for kind, count in asdict(self).items() if count is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """An accelerator."""

    name: str
    node: int
    """Machine that the device is in, counted from 0."""
    profile: str
    memory_bytes: float
    """Nominal size of its memory."""
    copy_engines: CopyEngines = field(default=CopyEngines(), repr=False)
    message_overhead: MessageOverhead = field(default=MessageOverhead(), repr=False)
    memory_reserve: MemoryReserve = field(default=MemoryReserve(), repr=False)
    """What of the memory the tensors of a network cannot have."""
    speed: float = field(default=1.0, repr=False)
    """Speed of arithmetic and memory relative to the profile."""
    communication_channels: int = field(default=0, repr=False)
    """Multiprocessors that messages occupy while they travel: channels of the communication library; 0 where network
    cards and copy engines move them, or where it is not known."""
    step_spread: float = field(default=0.0, repr=False)
    """Standard deviation of the time that the device computes in an iteration, as a share of the mean; 0 if unknown."""
    board_speed: float = field(default=1.0, repr=False)
    """Speed of arithmetic while all devices of the same board compute, relative to that of the device alone."""

    def __post_init__(self) -> None:
        if self.communication_channels < 0:
            raise ConfigError(
                f"Device.communication_channels must be >= 0, got {self.communication_channels} for {self.name!r}"
            )
        if not 0 <= self.step_spread < 1:
            raise ConfigError(f"Device.step_spread must be >= 0 and < 1, got {self.step_spread!r} for {self.name!r}")
        if not 0 < self.board_speed <= 1:
            raise ConfigError(f"Device.board_speed must be > 0 and <= 1, got {self.board_speed!r} for {self.name!r}")
        if not 0 < self.speed < math.inf:
            raise ConfigError(f"Device.speed must be finite and > 0, got {self.speed!r} for {self.name!r}")
        if not 0 < self.memory_bytes < math.inf:
            raise ConfigError(
                f"Device.memory_bytes must be finite and > 0 B, got {self.memory_bytes!r} for {self.name!r}"
            )
        if self.node < 0:
            raise ConfigError(f"Device.node must be >= 0, got {self.node} for {self.name!r}")

    @property
    def usable_bytes(self) -> float:
        """Memory that the tensors of a network can have: whatever asks whether a plan fits compares with this."""
        return self.memory_reserve.usable_bytes(self.memory_bytes)
