"""Links: what transfers share."""

import math
from dataclasses import dataclass

from groundwork.errors import ConfigError
from hwprofiles.devices.latency import Latency

ROUTING_BYTES = float(2**20)
"""Size of the message whose time over the links of a route, one after another, is least."""
PICOSECONDS = 1e12
"""Picoseconds in a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A resource that transfers share: one direction of a full-duplex link, or both of a half-duplex one."""

    name: str
    source: int
    target: int
    both_ways: bool
    """Flag of a half-duplex link: transfers from target to source share it too."""
    bandwidth_bytes_per_s: float
    """Payload rate, not the signalling rate."""
    latency: Latency
    exclusive: bool
    """Flag that the link serves one transfer at a time; otherwise transfers share it fairly."""
    link_class: str
    """Kind of link, such as ``nvlink1``."""

    def __post_init__(self) -> None:
        if not 0 < self.bandwidth_bytes_per_s < math.inf:
            raise ConfigError(
                "Link.bandwidth_bytes_per_s must be finite and > 0 B/s, "
                f"got {self.bandwidth_bytes_per_s!r} for {self.name!r}"
            )

    @property
    def routing_cost(self) -> int:
        """Time of a message of ``ROUTING_BYTES`` over this link alone, in picoseconds."""
        seconds = self.latency.at(ROUTING_BYTES) + ROUTING_BYTES / self.bandwidth_bytes_per_s
        return round(seconds * PICOSECONDS)
