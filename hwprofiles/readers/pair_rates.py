"""Reader of the output of the CUDA sample ``p2pBandwidthLatencyTest``."""

import math
import re

from groundwork.control_characters import printable
from groundwork.errors import ConfigError
from groundwork.units import GIGA, MICRO
from hwprofiles.readers.facts import PairRates

MATRIX_TITLE = re.compile(
    r"^\W*(?P<kind>Unidirectional |Bidirectional )?P2P=(?P<peer>Enabled|Disabled) (?P<what>Bandwidth|Latency)"
    r".*Matrix \((?P<unit>[^)]*)\)",
    re.MULTILINE,
)
_DEVICE = re.compile(r"^\W*Device: (\d+), ([^,]+), pciBusID", re.MULTILINE)
_MOST = 64
_Matrix = tuple[tuple[float, ...], ...]


def pair_rates(text: str, origin: str) -> PairRates:
    """Return the bandwidth of each pair of GPUs in one direction and, where it is there, the latency.

    Pairs are measured with direct access to each other's memory where the GPUs have it; where the output has no such
    table, without.

    Raises:
        ConfigError: There is no table of bandwidths in one direction, it is cut off, its unit is another, or a value
            is not a positive number.
    """
    found: dict[tuple[str, str], _Matrix] = {}
    for match in MATRIX_TITLE.finditer(text):
        kind, unit = match["kind"] or "", match["unit"]
        if kind.startswith("Bi"):
            continue
        wanted = "GB/s" if match["what"] == "Bandwidth" else "us"
        if unit != wanted:
            raise ConfigError(f"{origin}: {match['what'].lower()} must be in {wanted}, got {printable(unit)[:20]!r}")
        found.setdefault((match["what"], match["peer"]), _matrix(text[match.end() :], f"{origin}: {match['what']}"))
    rates = found.get(("Bandwidth", "Enabled")) or found.get(("Bandwidth", "Disabled"))
    if rates is None:
        raise ConfigError(f"{origin} needs the table of unidirectional bandwidths, got none")
    waits = found.get(("Latency", "Enabled")) or found.get(("Latency", "Disabled"))
    if waits is not None and len(waits) != len(rates):
        raise ConfigError(f"{origin} contradicts itself: bandwidths of {len(rates)} GPUs, latencies of {len(waits)}")
    models = {int(number[:9]): name.strip() for number, name in _DEVICE.findall(text)}
    if models and sorted(models) != list(range(len(rates))):
        raise ConfigError(f"{origin} contradicts itself: {len(models)} devices, but bandwidths of {len(rates)}")
    return PairRates(
        origin=origin,
        models=tuple(models[i] for i in range(len(rates))) if models else (),
        bytes_per_s=tuple(tuple(value * GIGA for value in row) for row in rates),
        latency_s=None if waits is None else tuple(tuple(value * MICRO for value in row) for row in waits),
    )


def _matrix(text: str, where: str) -> _Matrix:
    """Return the first square table after a title."""
    rows: list[list[str]] = []
    columns = None
    for line in text.splitlines():
        words = line.split()
        if columns is None:
            if words and words[0] in ("D\\D", "GPU"):
                columns = words[1:]
                if not 0 < len(columns) <= _MOST or columns != [str(i) for i in range(len(columns))]:
                    raise ConfigError(f"{where} must have the columns 0, 1, ..., got {printable(line.strip())[:60]!r}")
            continue
        if len(rows) == len(columns) or not words or words[0] != str(len(rows)):
            break
        rows.append(words[1:])
    if columns is None or len(rows) < len(columns) or any(len(row) != len(columns) for row in rows):
        size = len(columns or ())
        raise ConfigError(f"{where} is cut off: it must have {size} rows of {size} numbers")
    return tuple(tuple(_positive(word, where) for word in row) for row in rows)


def _positive(word: str, where: str) -> float:
    """Return a positive number."""
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 < value < 1e9:
        raise ConfigError(f"{where} must be a number > 0, got {printable(word)[:20]!r}")
    return value
