"""Reader of the output of ``ibstat``."""

import re

from groundwork.control_characters import printable
from groundwork.errors import ConfigError
from groundwork.units import GIGA
from hwprofiles.readers.facts import Card, CardList

CARD_LINE = re.compile(r"^\s*CA '([^'\n]+)'\s*$", re.MULTILINE)
_MOST_GBIT = 10_000


def cards_of(text: str, origin: str) -> CardList:
    """Return the cards whose first port is up, with the rates of their ports added.

    Raises:
        ConfigError: No port is up, a rate is not a number of Gbit/s, or a card is listed twice.
    """
    parts = CARD_LINE.split(text)[1:]
    names, bodies = parts[::2], parts[1::2]
    if len(set(names)) < len(names):
        raise ConfigError(f"{origin} lists a card twice")
    up: list[Card] = []
    down: list[str] = []
    for name, body in zip(names, bodies, strict=True):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", name):
            raise ConfigError(f"{origin}: name of a card must be letters, digits, '_', '.' and '-', got {name[:40]!r}")
        rates = [_rate(port, origin, name) for port in re.split(r"^\s*Port \d+:\s*$", body, flags=re.MULTILINE)[1:]]
        total = sum(rate for rate in rates if rate)
        if total:
            up.append(Card(name=name, bits_per_s=total * GIGA, transport=_transport(body)))
        else:
            down.append(name)
    if not up:
        raise ConfigError(f"{origin} lists no card with a port that is up")
    return CardList(origin=origin, cards=tuple(up), down=tuple(down))


def _transport(body: str) -> str:
    """Return the transport that the link layer of a card's ports shows."""
    layers = set(re.findall(r"^\s*Link layer:[ \t]*(\w+)", body, re.MULTILINE))
    return {"InfiniBand": "infiniband", "Ethernet": "roce"}.get(layers.pop(), "") if len(layers) == 1 else ""


def _rate(port: str, origin: str, name: str) -> float:
    """Return the rate of a port in Gbit/s; 0 where it is not up."""
    values = dict(re.findall(r"^\s*([A-Za-z ]+):[ \t]*(.*?)\s*$", port, re.MULTILINE))
    if values.get("State") != "Active":
        return 0.0
    text = values.get("Rate", "")
    match = re.match(r"(\d{1,6}(?:\.\d{1,3})?)(?:$| |\s*\()", text)
    if not match or not 0 < float(match[1]) <= _MOST_GBIT:
        raise ConfigError(f"{origin}: Rate of {name} must be a number of Gbit/s, got {printable(text)[:20]!r}")
    return float(match[1])
