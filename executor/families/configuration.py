"""Fields of a published configuration, the ``config.json`` beside a model's weights, each checked where it is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groundwork.errors import ConfigError
from groundwork.input_files import json_input

_MOST = 2**24
"""Greatest value of a count, such as that of words."""
_MOST_LAYERS = 1000
_REQUIRED = object()


@dataclass(frozen=True, slots=True)
class PublishedFields:
    """The fields of a configuration."""

    path: Path
    values: Mapping[str, Any]
    notes: list[str] = field(default_factory=list)
    """What the configuration says that the module does not follow, a sentence each."""

    def count(self, name: str, default: Any = _REQUIRED) -> int:
        """Return a whole number >= 1, such as the layers or the words.

        Raises:
            ConfigError: The field is no such number, or is missing and has no default.
        """
        value = self._given(name, default)
        most = _MOST_LAYERS if name.endswith(("layers", "n_layer")) else _MOST
        if type(value) is not int or not 1 <= value <= most:
            raise self.problem(name, f"a whole number from 1 to {most:,}", value)
        return value

    def number(self, name: str, default: float) -> float:
        """Return a number > 0; arguments and errors as for ``count``."""
        value = self._given(name, default)
        if type(value) not in (int, float) or not 0 < value <= 2**31:
            raise self.problem(name, "a number > 0", value)
        return float(value)

    def share(self, name: str, default: float) -> float:
        """Return a probability of dropout, from 0 to below 1; arguments and errors as for ``count``."""
        value = self._given(name, default)
        if type(value) not in (int, float) or not 0 <= value < 1:
            raise self.problem(name, "a number from 0 to below 1", value)
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false; arguments and errors as for ``count``."""
        value = self._given(name, default)
        if type(value) is not bool:
            raise self.problem(name, "true or false", value)
        return value

    def choice(self, name: str, known: Sequence[str], default: str) -> str:
        """Return one of some words; arguments and errors as for ``count``."""
        value = self._given(name, default)
        if value not in known:
            raise self.problem(name, f"one of {', '.join(known)}", value)
        return str(value)

    def architecture(self, known: Sequence[str]) -> str:
        """Return the class of the published model, the first of those known where none is named.

        Raises:
            ConfigError: Another is named.
        """
        given = self.values.get("architectures")
        if given is None or given == []:
            return known[0]
        if not isinstance(given, list) or given[0] not in known:
            raise self.problem("architectures", f"a list of one of {', '.join(known)}", given)
        return str(given[0])

    def head_size(self, width: int, heads: int) -> int:
        """Return the channels of a head, of ``width`` channels in all.

        Raises:
            ConfigError: The heads do not divide the channels.
        """
        if width % heads:
            raise ConfigError(f"configuration {self.path}: heads must divide the {width} channels, got {heads}")
        return width // heads

    def problem(self, name: str, rule: str, value: Any) -> ConfigError:
        """Return the error that a field breaks a rule."""
        given = "none" if value is _REQUIRED else repr(value)[:80]
        return ConfigError(f"configuration {self.path}: {name} must be {rule}, got {given}")

    def _given(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        return default if value is None else value


def read_configuration(path: Path) -> PublishedFields:
    """Read a configuration.

    Raises:
        ConfigError: The file is no JSON, or does not hold a mapping.
    """
    content = json_input(path, "configuration")
    if not isinstance(content, dict):
        raise ConfigError(f"configuration {path} must be a mapping with model_type, as config.json of a model is")
    return PublishedFields(path, content)
