"""Limits of what a file may hold: nesting, aliases, length of numbers, characters that steer a terminal."""

import re
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import yaml

from groundwork.control_characters import STEERING
from groundwork.errors import ConfigError

MOST_LEVELS, MOST_VALUES = 64, 2_000_000
"""Levels of nested lists and mappings in a file, and values in a YAML file after its aliases are expanded."""
_MOST_DIGITS = 100
"""Length of a number in a YAML file: more than any has, less than the 4,300 digits that Python reads."""
_NUMBER = re.compile(r"[-+0-9a-fA-FoxOX_.:]+")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where libyaml is there


def parsed_yaml(text: str, origin: str) -> Any:
    """Return the value of a YAML text.

    The events of the text are counted before a value is made, so that neither nesting nor aliases of aliases can take
    more memory or time than a file of this size deserves.

    Raises:
        ConfigError: The text is not YAML or is cut off; or it is nested over ``MOST_LEVELS`` deep, its aliases make
            more than ``MOST_VALUES`` values of it or contain themselves, or it breaks a rule of ``check_values``.
    """
    try:
        count = _EventCount(origin)
        for event in yaml.parse(text, _Loader):
            count.add(event)
        value = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{origin} is not YAML or is cut off: {' '.join(str(error).split())}") from None
    except (ValueError, OverflowError) as error:  # PyYAML raises it for a date such as 2026-13-01
        raise ConfigError(f"{origin} holds a value that cannot be read: {error}") from None
    check_values(value, origin)
    return value


@dataclass(slots=True)
class _EventCount:
    """Count of the values of a YAML text and of the levels that they are nested in, aliases expanded."""

    origin: str
    values: int = 0
    open_values: list[tuple[str | None, int]] = field(default_factory=list)
    """Anchor of each list and mapping that has not ended, and the count before it."""
    deepest: list[int] = field(default_factory=list)
    """Levels below each of them, so far."""
    anchored: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Values and levels of whatever has an anchor."""

    def add(self, event: yaml.Event) -> None:
        """Count an event.

        Raises:
            ConfigError: A limit is broken, or an alias stands within what it refers to.
        """
        levels = 0
        if isinstance(event, yaml.CollectionStartEvent):
            self.open_values.append((event.anchor, self.values))
            self.deepest.append(0)
            self.values += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = self.open_values.pop()
            levels = self.deepest.pop() + 1
            self._keep(anchor, self.values - before, levels)
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in self.open_values):
                raise ConfigError(f"{self.origin}: *{event.anchor} must not contain itself")
            values, levels = self.anchored.get(event.anchor or "", (1, 0))
            self.values += values
        elif isinstance(event, yaml.ScalarEvent):
            if len(event.value) > _MOST_DIGITS and _NUMBER.fullmatch(event.value):
                raise ConfigError(
                    f"{self.origin}: numbers must have at most {_MOST_DIGITS} digits, got {len(event.value)}"
                )
            self.values += 1
            self._keep(event.anchor, 1, 0)
        if self.deepest:
            self.deepest[-1] = max(self.deepest[-1], levels)
        if len(self.open_values) + levels > MOST_LEVELS:
            raise ConfigError(f"{self.origin} must be nested at most {MOST_LEVELS} levels deep")
        if self.values > MOST_VALUES:
            raise ConfigError(f"{self.origin} must hold at most {MOST_VALUES:,} values, aliases expanded")

    def _keep(self, anchor: str | None, values: int, levels: int) -> None:
        """Remember what an anchor stands for."""
        if anchor:
            self.anchored[anchor] = values, levels


def check_values(value: Any, origin: str) -> None:
    """Refuse a value of a file that no reader expects.

    Raises:
        ConfigError: The value is nested over ``MOST_LEVELS`` deep, an integer needs more than 64 bits, or a text has
            characters that steer a terminal.
    """
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        for each in level:
            if type(each) is int and not -(2**63) <= each < 2**63:  # NumPy's integers cannot hold it
                raise ConfigError(f"{origin}: integers must fit in 64 bits, got one of {each.bit_length()} bits")
            if isinstance(each, str) and STEERING.search(each):
                raise ConfigError(f"{origin}: texts must hold no control characters, got {each[:60]!r}")
        level = [part for each in level for part in _parts(each, origin)]
        if not level:
            return
    raise ConfigError(f"{origin} must be nested at most {MOST_LEVELS} levels deep")


def _parts(value: Any, origin: str) -> Iterator[Any]:
    """Yield what a list or a mapping holds, its keys included; the first of integers that all fit stands for them."""
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    elif isinstance(value, list | tuple | set):
        yield from islice(value, 1 if _fit(value) else None)


def _fit(values: Collection[Any]) -> bool:
    """Return whether values are integers that fit in 64 bits, looked at as a whole: plans list devices by thousands."""
    try:
        array("q", values)
    except (TypeError, OverflowError):
        return False
    return True
