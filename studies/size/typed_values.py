"""Durations and prices as people type them: ``36h``, ``1.5d``; ``1.2`` for all clusters, or one for each."""

import math
import re
from collections.abc import Sequence

from groundwork.errors import ConfigError
from groundwork.units import HOUR_S

_UNITS_S = {"s": 1.0, "min": 60.0, "h": HOUR_S, "d": 24 * HOUR_S, "y": 8766 * HOUR_S}
"""Seconds by unit; a year has 365.25 days."""


def duration_s(text: str) -> float:
    """Return the seconds that a duration stands for.

    Raises:
        ConfigError: It is no such text, or not a finite number > 0.
    """
    match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*(s|min|h|d|y)\s*", text)
    try:
        value = float(match[1]) * _UNITS_S[match[2]] if match else math.nan
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ConfigError(f"must be a number > 0 with a unit of {', '.join(_UNITS_S)}, such as 36h, got {text!r}")
    return value


def read_prices(words: Sequence[str], clusters: Sequence[str]) -> dict[str, float]:
    """Return the price of an hour of one device by cluster; under the empty name that of all others.

    Args:
        words: ``1.2`` for all clusters, or ``CLUSTER=1.2``.
        clusters: The clusters.

    Raises:
        ConfigError: A price is no number > 0, or of none of the clusters.
    """
    prices = dict[str, float]()
    for word in words:
        name, _, text = word.rpartition("=")
        try:
            price = float(text)
        except ValueError:
            price = math.nan
        if not 0 < price < math.inf:
            raise ConfigError(f"price must be a number > 0, or CLUSTER=number, got {word!r}")
        if name and name not in clusters:
            raise ConfigError(f"price must be of one of the clusters {', '.join(clusters)}, got {name!r}")
        if name in prices:
            raise ConfigError(f"price of {name or 'all clusters'} must be given once, got it twice")
        prices[name] = price
    return prices
