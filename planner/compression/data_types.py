"""Data types that messages are compressed with: names, parameters, and sizes of messages; the executor has the codecs.

The types are those of Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016 (dynamic tree,
static tree, linear quantization, mantissa) and those it is compared with: one bit an element (Seide et al.,
Interspeech 2014), a threshold (Strom, Interspeech 2015), half-width floats, and float32 itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from groundwork.errors import ConfigError
from groundwork.suggestions import did_you_mean
from hwprofiles.compute.compute_profile import ComputeProfile

_Count = TypeVar("_Count", int, NDArray[np.int64])

SCALE_BYTES = 4
"""Size of a scale in a message."""
_WIDTH_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
COMPRESSIONS = (
    "dynamic-tree",
    "static-tree",
    "linear",
    "mantissa",
    "one-bit",
    "threshold",
    "float16",
    "bfloat16",
    "float32",
)
"""Names of all types; ``planner.compression.type_parameters`` holds the parameters of each."""
_FEEDBACK = ("one-bit", "threshold")
"""Types that keep the part of a tensor that one message omits, and add it to the next."""


def compression_names() -> list[str]:
    """Return the names of all types."""
    return list(COMPRESSIONS)


@dataclass(frozen=True, slots=True)
class Compression:
    """A data type with its parameters; made by ``compression``."""

    name: str
    parameters: tuple[tuple[str, float], ...] = ()
    """All parameters of the type with their values, in the order of the type."""

    def __getitem__(self, parameter: str) -> float:
        """Return the value of a parameter."""
        return dict(self.parameters)[parameter]

    @property
    def text(self) -> str:
        """Text that ``compression`` reads: the name, and the parameters that are not at their defaults."""
        if not self.parameters:
            return self.name
        from planner.compression.type_parameters import default_parameters  # pydantic delays the start of a rank

        defaults = default_parameters(self.name)
        given = ",".join(f"{key}={value}" for key, value in self.parameters if value != defaults[key])
        return f"{self.name}:{given}" if given else self.name

    @property
    def feedback(self) -> bool:
        """True if the part of a tensor that one message omits is kept and added to the next."""
        return self.name in _FEEDBACK

    def scales(self, elements: _Count) -> _Count:
        """Return the number of scales in a message: one, or one a block; none if nothing is scaled.

        Args:
            elements: Elements in the message; an array gives an array.
        """
        values = dict(self.parameters)
        block = int(values.get("block", 0))
        if "block" not in values or not values.get("normalised", 1):
            return elements * 0
        return -(-elements // block) if block else elements * 0 + 1

    def compressed_bytes(self, elements: _Count) -> _Count:
        """Return the size of a message, in bytes; it depends on the number of elements alone.

        Args:
            elements: Elements in the message, >= 0; an array gives an array.

        Raises:
            ConfigError: ``elements`` is negative.
        """
        if np.min(elements, initial=0) < 0:
            raise ConfigError(f"elements must be >= 0, got {np.min(elements)}")
        if self.name in _WIDTH_BYTES:
            return elements * _WIDTH_BYTES[self.name]
        if self.name == "threshold":
            return (1 + -(-elements // int(self["every"]))) * 4  # the count, then 32 bits for each element sent
        if self.name == "one-bit":
            return self.scales(elements) * (2 * SCALE_BYTES) + -(-elements // 8)
        return self.scales(elements) * SCALE_BYTES + elements


def compression(spec: str, **parameters: object) -> Compression:
    """Return the data type of a name, with parameters.

    Args:
        spec: Name, and parameters if any: ``dynamic-tree``, ``static-tree:offset=2``, ``linear:block=4096``; several
            are joined by commas.
        **parameters: The same by keyword.

            * ``normalised`` (table types): 1: divide by the absolute maximum; 0: do not.
            * ``block`` (table types, ``one-bit``): elements that share a scale; 0: the whole tensor.
            * ``offset`` (table types): exponent offset: the table times ten to this power.
            * ``top`` (trees): upper end of the bisected interval, whose lower end is 0.1.
            * ``threshold``: least size of an element that is sent.
            * ``every`` (``threshold``): at most one element in so many is sent.

    Raises:
        ConfigError: The type (the message suggests the nearest) or a parameter is unknown, or a value breaks its rule.
    """
    name, colon, text = spec.partition(":")
    if name not in COMPRESSIONS:
        hint = did_you_mean(name, COMPRESSIONS, cutoff=0.5)
        raise ConfigError(f"data type must be one of {', '.join(COMPRESSIONS)}, got {name!r}{hint}")
    given = dict(parameters)
    for setting in text.split(",") if colon else ():
        key, equals, value = setting.partition("=")
        if not equals or key in given:
            raise ConfigError(f"{name} must be given each parameter once, as name=number, got {setting!r}")
        given[key] = value
    from planner.compression.type_parameters import read_type_parameters  # pydantic delays the start of a rank

    values = read_type_parameters(name, given)
    _check_scaling(name, values)
    return Compression(name, tuple(values.items()))


def check_codec_times(profile: ComputeProfile) -> None:
    """Refuse measured codec times of a profile under names that no ``Compression.text`` is.

    Raises:
        ConfigError: A type is unknown, or written in another way than ``Compression.text``.
    """
    for text in dict.fromkeys(kind for kind, _, _ in profile.codecs):
        try:
            written = compression(text).text
        except ConfigError as error:
            raise ConfigError(f"compute profile {profile.name}: compression: {error}") from None
        if text != written:
            raise ConfigError(f"compute profile {profile.name}: compression: type must be {written!r}, got {text!r}")


def _check_scaling(name: str, values: Mapping[str, float]) -> None:
    """Refuse an exponent offset of normalised tables, and blocks of tables that are not normalised."""
    if "normalised" not in values:
        return
    if values["normalised"] and values["offset"]:
        raise ConfigError(
            f"{name}:offset must be 0 with normalised=1: the maximum sets the exponent, got {values['offset']}"
        )
    if not values["normalised"] and values["block"]:
        raise ConfigError(f"{name}:block must be 0 with normalised=0: nothing is scaled, got {values['block']}")
