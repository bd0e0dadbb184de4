"""Overhead of messages on the arithmetic of a device whose own processor moves them."""

import math
from dataclasses import astuple, dataclass, fields

from groundwork.errors import ConfigError


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
        for field in fields(self):
            if not 0 <= (value := getattr(self, field.name)) < math.inf:
                raise ConfigError(f"MessageOverhead.{field.name} must be finite and >= 0 s, got {value!r}")

    def __bool__(self) -> bool:
        return any(astuple(self))
