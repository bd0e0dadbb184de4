"""Power of devices for estimates of energy: the limits of their boards, where the manufacturer names one."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from groundwork.input_files import yaml_input

_FILE = Path(__file__).with_name("board_power.yaml")


@cache
def _limits() -> Mapping[str, tuple[float, str]]:
    """Return watts and source by compute profile."""
    rows = yaml_input(_FILE, "power limits")
    return {name: (float(row["watts"]), str(row["source"])) for name, row in rows.items()}


def board_power_w(profiles: Sequence[str]) -> float | None:
    """Return the power limit of devices together; None where that of one is not known."""
    known, boards = _limits(), [_board(name) for name in profiles]
    return sum(known[name][0] for name in boards) if set(boards) <= set(known) else None


def power_sources(profiles: Sequence[str]) -> list[str]:
    """Return the documents that the limits are from, each once."""
    known = _limits()
    return [known[name][1] for name in dict.fromkeys(map(_board, profiles)) if name in known]


def _board(profile: str) -> str:
    """Return the name of a profile without the arithmetic behind it, which the board's limit does not depend on."""
    return profile.partition("@")[0]
