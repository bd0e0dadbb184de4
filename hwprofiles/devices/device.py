"""Devices: accelerators with their memory, and what they are beside their compute profile."""

import math
from dataclasses import dataclass, field

from groundwork.errors import ConfigError
from hwprofiles.devices.copy_engines import CopyEngines
from hwprofiles.devices.memory_reserve import MemoryReserve
from hwprofiles.devices.message_overhead import MessageOverhead


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """An accelerator."""

    name: str
    node: int
    """Machine that the device is in, counted from 0."""
    profile: str
    """Name of the compute profile."""
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
