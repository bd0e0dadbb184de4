"""Levels at which entries of a machine meet, from their places in the tree of sockets, host bridges and switches."""

from collections.abc import Sequence
from dataclasses import dataclass

from groundwork.errors import ConfigError

_SIGNAL_BYTES = {
    "2.5": 0.25e9,
    "5.0": 0.5e9,
    "5": 0.5e9,
    "8.0": 0.985e9,
    "8": 0.985e9,
    "16.0": 1.969e9,
    "16": 1.969e9,
    "32.0": 3.938e9,
    "32": 3.938e9,
    "64.0": 7.563e9,
    "64": 7.563e9,
}
"""Bytes a second of one lane, after its line code, by GT/s."""
_MOST_ENTRIES = 256
"""GPUs, or cards, of one machine: each two of them are compared."""


@dataclass(frozen=True, slots=True)
class PciPlace:
    """Where an entry is."""

    socket: str
    host: str
    """Host bridge; empty where the file shows none."""
    switches: tuple[str, ...]
    """PCIe bridges or switches above it, from the host on."""


def lane_rate(giga_transfers: str, width: str) -> float | None:
    """Return the rate of a PCIe link such as ``8.0 GT/s PCIe`` of 16 lanes after its line code, in bytes/s."""
    lane = _SIGNAL_BYTES.get(giga_transfers.split()[0] if giga_transfers.split() else "")
    lanes = int(width) if width.isascii() and width.isdigit() and len(width) < 4 else 0
    return lane * lanes if lane and 0 < lanes <= 32 else None


def check_count(entries: Sequence[object], what: str, origin: str) -> None:
    """Refuse a machine with more GPUs or cards than any has.

    Raises:
        ConfigError: There are more than 256.
    """
    if len(entries) > _MOST_ENTRIES:
        raise ConfigError(f"{origin} must show at most {_MOST_ENTRIES} {what}, got {len(entries):,}")


def meeting_levels(places: Sequence[PciPlace], bridges_inside: int) -> tuple[tuple[int | None, ...], ...]:
    """Return the level at which each two entries meet, an index into ``LEVEL_NAMES``; None on the diagonal.

    Args:
        places: Place of each entry.
        bridges_inside: Bridges below the one where two entries of one switch meet: 0 where the file shows a switch as
            one, 1 where it shows its ports.
    """
    return tuple(
        tuple(None if i == j else _level(a, b, bridges_inside) for j, b in enumerate(places))
        for i, a in enumerate(places)
    )


def _level(a: PciPlace, b: PciPlace, bridges_inside: int) -> int:
    """Return the level at which two entries meet."""
    if a.socket != b.socket:
        return 4
    if a.host != b.host:
        return 3
    shared = 0
    while shared < min(len(a.switches), len(b.switches)) and a.switches[shared] == b.switches[shared]:
        shared += 1
    if not shared:
        return 2
    deepest = max(len(a.switches), len(b.switches)) - shared
    return 0 if deepest <= bridges_inside else 1
