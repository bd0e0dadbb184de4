"""Cluster files: their form, and how one is read and checked.

A file describes levels from the inside out (a machine, a rack, the whole cluster), each with so many of
the level below, switches and links of its own.  Vendor units exist here and nowhere further in.
"""

import reprlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from hwprofiles import BITS_PER_BYTE, GIB, GIGA, MICRO, NANO, ConfigError
from hwprofiles.devices import Latency, MessageOverhead

__all__ = [
    "ClusterFile",
    "DeviceGroup",
    "Level",
    "LinkClass",
    "LinkRule",
    "ParameterRule",
    "SwitchGroup",
    "parse_cluster",
    "read_parameters",
    "read_tree",
]

PARAMETRIC = frozenset(
    {"count", "at_most", "each", "bandwidth_gbyte_per_s", "bandwidth_gbit_per_s", "latency_us", "memory_gib"}
    | {"total", "host_to_device", "device_to_host", "peer"}
    | {"message_us", "byte_ns", "add_byte_ns"}
)
"""Keys whose value may be the name of a parameter."""


def _number(value: object) -> object:
    """Refuse what pydantic would read as a number although the file does not say one."""
    if isinstance(value, bool | str):
        raise ValueError("must be a number (or, where one is allowed, the name of a parameter)")
    return value


_Number = BeforeValidator(_number)
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), _Number]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), _Number]
_Count = Annotated[int, Field(ge=1, le=1_000_000), _Number]
Index = Annotated[int, Field(ge=0), _Number]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _one_of(model: BaseModel, *fields: str) -> None:
    given = [field for field in fields if getattr(model, field) is not None]
    if len(given) != 1:
        raise ValueError(f"needs exactly one of {', '.join(fields)}, got {' and '.join(given) or 'none'}")


class ParameterRule(_Strict):
    """A number that the user may choose; whole where its default is."""

    description: str = ""
    default: Annotated[int | float, Field(allow_inf_nan=False), _Number]
    minimum: Annotated[int | float, Field(allow_inf_nan=False), _Number]
    maximum: Annotated[int | float, Field(allow_inf_nan=False), _Number]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.minimum <= self.default <= self.maximum:
            raise ValueError(f"needs minimum <= default <= maximum, got {self.minimum}, {self.default}, {self.maximum}")
        return self


class LatencyRow(_Strict):
    """One row of a latency table."""

    size_kbyte: NotNegative | None = None
    """Thousands of bytes."""
    size_kib: NotNegative | None = None
    latency_us: NotNegative

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        _one_of(self, "size_kbyte", "size_kib")
        return self

    @property
    def size_bytes(self) -> float:
        """Size of the message."""
        return self.size_kbyte * 1000 if self.size_kbyte is not None else (self.size_kib or 0.0) * 1024


class LinkClass(_Strict):
    """A kind of link."""

    description: str = ""
    bandwidth_gbyte_per_s: _Positive | None = None
    bandwidth_gbit_per_s: _Positive | None = None
    latency_us: NotNegative | None = None
    latency_table: tuple[LatencyRow, ...] | None = None
    duplex: Literal["full", "half"] = "full"
    """Full: a resource for each direction.  Half: one for both."""
    sharing: Literal["fair", "exclusive"] = "fair"

    @model_validator(mode="after")
    def _complete(self) -> Self:
        _one_of(self, "bandwidth_gbyte_per_s", "bandwidth_gbit_per_s")
        _one_of(self, "latency_us", "latency_table")
        sizes = [row.size_bytes for row in self.latency_table or ()]
        if self.latency_table == ():
            raise ValueError("latency_table needs a row, got none")
        if any(low >= high for low, high in pairwise(sizes)):
            raise ValueError(f"latency_table needs rising sizes, got {sizes} bytes")
        return self

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Bandwidth of one direction."""
        if self.bandwidth_gbyte_per_s is not None:
            return self.bandwidth_gbyte_per_s * GIGA
        return (self.bandwidth_gbit_per_s or 0.0) * GIGA / BITS_PER_BYTE

    @property
    def latency(self) -> Latency:
        """Latency of one crossing."""
        if self.latency_table is None:
            return Latency.constant((self.latency_us or 0.0) * MICRO)
        rows = self.latency_table
        return Latency(tuple(row.size_bytes for row in rows), tuple(row.latency_us * MICRO for row in rows))


class _Group(_Strict):
    """A vertex of that name, or with a count so many: ``plx0``, ``plx1``, ..."""

    name: Name
    count: _Count | None = None

    @property
    def names(self) -> list[str]:
        """Names of the vertices."""
        return [self.name] if self.count is None else [f"{self.name}{i}" for i in range(self.count)]


class SwitchGroup(_Group):
    """Switches, network cards, hosts."""

    is_host: bool = False
    """It is a host's memory: transfers that cross it are copied from a device to it, and from it to a device."""


class EngineCounts(_Strict):
    """Copy engines of a device by kind; as many as its links carry where nothing is said."""

    total: _Count | None = None
    """For copies of every kind together: CUDA's ``asyncEngineCount``."""
    host_to_device: _Count | None = None
    device_to_host: _Count | None = None
    peer: _Count | None = None


class OverheadTimes(_Strict):
    """What messages take from a device's arithmetic, where its own processor moves them."""

    message_us: NotNegative = 0.0
    """For each message, at each end."""
    byte_ns: NotNegative = 0.0
    """For each byte, at each end."""
    add_byte_ns: NotNegative = 0.0
    """For each byte that is added to what the device has."""

    @property
    def in_seconds(self) -> MessageOverhead:
        """The same for the device graph."""
        return MessageOverhead(
            message_s=self.message_us * MICRO, byte_s=self.byte_ns * NANO, add_byte_s=self.add_byte_ns * NANO
        )


class DeviceGroup(_Group):
    """Devices, named like switches."""

    profile: Annotated[str, Field(min_length=1)]
    memory_gib: _Positive
    node: Index = 0
    """Machine within the level, for files that list several machines flat."""
    copy_engines: EngineCounts = EngineCounts()
    message_overhead: OverheadTimes = OverheadTimes()

    @property
    def memory_bytes(self) -> float:
        """Memory of one device."""
        return self.memory_gib * GIB


class LinkRule(_Strict):
    """Links between every vertex of one pattern and every vertex of another.

    ``*``, ``?`` and ``[01]`` match within a name.  ``machine/nic0`` is vertex ``nic0`` of every child when
    the level below is called ``machine``, and ``machine3/nic0`` that of one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    between: tuple[str, str]
    link_class: Annotated[str, Field(alias="class")]
    count: _Count = 1
    """Parallel cables that act as one link of so many times the bandwidth."""
    each: _Count | None = None
    """Repeat with ``{i}`` in the patterns as 0, 1, ..."""


class Level(_Strict):
    """One level, such as a machine, with what it adds to the level below."""

    name: Name
    count: _Count | None = None
    """How many of the level below it holds; together with ``at_most``, how many all its copies hold."""
    at_most: _Count | None = None
    """A copy of this level holds at most so many; there are as many copies as needed, the last may be partial."""
    is_node: bool = False
    """Each copy is one machine (else copies of the innermost level are)."""
    devices: tuple[DeviceGroup, ...] = ()
    switches: tuple[SwitchGroup, ...] = ()
    links: tuple[LinkRule, ...] = ()


class ClusterFile(_Strict):
    """A whole file, with numbers in place of parameters."""

    version: Literal[1]
    name: Annotated[str, Field(min_length=1)]
    description: str = ""
    sources: tuple[str, ...] = ()
    parameters: Mapping[Name, ParameterRule] = {}
    link_classes: Mapping[Name, LinkClass] = {}
    levels: tuple[Level, ...]

    @model_validator(mode="after")
    def _counts_fit(self) -> Self:
        # Not a minimum length in the type: pydantic would also report it for a list whose only item is wrong.
        if not self.levels:
            raise ValueError("levels needs at least one level, got none")
        split = False
        for i, level in enumerate(self.levels):
            if i == 0 and (level.count or level.at_most):
                raise ValueError(f"levels.0 ({level.name}) is innermost and takes no count or at_most")
            if i and split == bool(level.count):
                rule = "takes no count: it holds all copies of" if split else "needs a count of"
                raise ValueError(f"levels.{i} ({level.name}) {rule} {self.levels[i - 1].name}")
            split = level.at_most is not None
        if split:
            raise ValueError(f"levels.{len(self.levels) - 1} is outermost and takes no at_most")
        return self


class _Header(BaseModel):
    """The part of a file that must be known before parameters can be put in."""

    parameters: Mapping[Name, ParameterRule] = {}


_Model = TypeVar("_Model", bound=BaseModel)


def read_tree(path: Path) -> dict[object, object]:
    """Read a YAML file whose outermost value is a mapping.

    Raises:
        ConfigError: The file cannot be read, is no YAML, is cut off, or holds no mapping.
    """
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cluster file {path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"cluster file {path} is not YAML or is cut off: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"cluster file {path} must hold a mapping, got {type(tree).__name__}")
    return tree


def read_parameters(tree: Mapping[object, object], origin: str) -> Mapping[str, ParameterRule]:
    """Parameters that a file declares."""
    return _validate(_Header, {"parameters": tree.get("parameters", {})}, origin).parameters


def parse_cluster(tree: Mapping[object, object], values: Mapping[str, float], origin: str) -> ClusterFile:
    """Check a whole file, with ``values`` in place of the names of parameters.

    Raises:
        ConfigError: Rules are broken; one line names every broken one with its path in the file.
    """
    filled = {key: _fill(part, values) if key in ("link_classes", "levels") else part for key, part in tree.items()}
    return _validate(ClusterFile, filled, origin)


def _fill(part: object, values: Mapping[str, float]) -> object:
    if isinstance(part, dict):
        return {
            key: values[value]
            if key in PARAMETRIC and isinstance(value, str) and value in values
            else _fill(value, values)
            for key, value in part.items()
        }
    return [_fill(item, values) for item in part] if isinstance(part, list) else part


def _validate(model: type[_Model], tree: object, origin: str) -> _Model:
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        problems = "; ".join(_problem(dict(item)) for item in error.errors(include_url=False))
        raise ConfigError(f"{origin}: {problems}") from None


def _problem(item: Mapping[str, object]) -> str:
    """One broken rule: where, which, and what was got."""
    location, kind = item["loc"], item["type"]
    assert isinstance(location, tuple)
    where = ".".join(str(step) for step in location) or "file"
    if kind == "extra_forbidden":
        return f"{where}: unknown key"
    if kind == "missing":
        return f"{where}: missing"
    message = (
        str(item["msg"])
        .removeprefix("Value error, ")
        .replace("Input should be", "must be")
        .replace("dictionary", "mapping")
    )
    return f"{where}: {message}" + ("" if isinstance(item["input"], dict) else f", got {reprlib.repr(item['input'])}")
