"""The format of cluster files, as checked classes.

A file describes levels from the inside out (a machine, a rack, the whole cluster), each with a number of copies of
the level below and with switches and links of its own.  Vendor units are converted here and nowhere else.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from groundwork.errors import ConfigError
from groundwork.units import BITS_PER_BYTE, GIB, GIGA, MICRO, NANO
from hwprofiles.catalogue.library_section import LibrarySection
from hwprofiles.catalogue.transports import DEFAULT_TRANSPORT, NetworkTransport, load_transport
from hwprofiles.devices.device import GPU_RESERVE, MemoryReserve, MessageOverhead
from hwprofiles.devices.latency import Latency


def _number(value: object) -> object:
    """Refuse a boolean or a string, which pydantic would convert to a number."""
    if isinstance(value, bool | str):
        raise ValueError("must be a number (or, where one is allowed, the name of a parameter)")
    return value


_Number = BeforeValidator(_number)
_Positive = Annotated[float, Field(ge=1e-9, le=1e12, allow_inf_nan=False), _Number]
NotNegative = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False), _Number]
_Count = Annotated[int, Field(ge=1, le=1_000_000), _Number]
Index = Annotated[int, Field(ge=0), _Number]
VertexName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]


class _Strict(BaseModel):
    """A mapping of a cluster file, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _one_of(model: BaseModel, *fields: str) -> None:
    """Raise unless exactly one of some fields is given."""
    given = [field for field in fields if getattr(model, field) is not None]
    if len(given) != 1:
        raise ValueError(f"needs exactly one of {', '.join(fields)}, got {' and '.join(given) or 'none'}")


class ChoiceRule(_Strict):
    """A word that the user may set."""

    description: str = ""
    default: str
    choices: tuple[str, ...]


class ParameterRule(_Strict):
    """A number that the user may set; a whole number where its default is one."""

    description: str = ""
    default: Annotated[int | float, Field(allow_inf_nan=False), _Number]
    minimum: Annotated[int | float, Field(allow_inf_nan=False), _Number]
    maximum: Annotated[int | float, Field(allow_inf_nan=False), _Number]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        """Raise unless the default lies between the limits."""
        if not self.minimum <= self.default <= self.maximum:
            raise ValueError(f"needs minimum <= default <= maximum, got {self.minimum}, {self.default}, {self.maximum}")
        return self


class LatencyRow(_Strict):
    """One row of a latency table."""

    size_kbyte: NotNegative | None = None
    """Size of the message in thousands of bytes."""
    size_kib: NotNegative | None = None
    """Size of the message in 1024 bytes."""
    latency_us: NotNegative

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        """Raise unless the size has one unit."""
        _one_of(self, "size_kbyte", "size_kib")
        return self

    @property
    def size_bytes(self) -> float:
        """Size of the message in bytes."""
        return self.size_kbyte * 1000 if self.size_kbyte is not None else (self.size_kib or 0.0) * 1024


class LinkClass(_Strict):
    """A class of links with equal properties."""

    description: str = ""
    bandwidth_gbyte_per_s: _Positive | None = None
    bandwidth_gbit_per_s: _Positive | None = None
    latency_us: NotNegative | None = None
    latency_table: tuple[LatencyRow, ...] | None = None
    duplex: Literal["full", "half"] = "full"
    """Resources of a link: one for each direction (full), or one for both (half)."""
    sharing: Literal["fair", "exclusive"] = "fair"
    """Service of concurrent transfers: all together at equal rates, or one at a time."""
    transport: str | None = None
    """Software that moves messages over these links from machine to machine, a name of ``transport_names``."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        """Raise unless there is one bandwidth and one latency, whose sizes rise."""
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
        """Bandwidth of one direction in bytes/s."""
        if self.bandwidth_gbyte_per_s is not None:
            return self.bandwidth_gbyte_per_s * GIGA
        return (self.bandwidth_gbit_per_s or 0.0) * GIGA / BITS_PER_BYTE

    @property
    def latency(self) -> Latency:
        """Latency of one message over the link."""
        if self.latency_table is None:
            return Latency.constant((self.latency_us or 0.0) * MICRO)
        rows = self.latency_table
        return Latency(tuple(row.size_bytes for row in rows), tuple(row.latency_us * MICRO for row in rows))


class _Group(_Strict):
    """A vertex of this name, or with a count as many vertices: ``plx0``, ``plx1``, ..."""

    name: VertexName
    count: _Count | None = None

    @property
    def names(self) -> list[str]:
        """Names of the vertices."""
        return [self.name] if self.count is None else [f"{self.name}{i}" for i in range(self.count)]


class SwitchGroup(_Group):
    """A group of switches, network cards or hosts."""

    is_host: bool = False
    """Flag of a host's memory: transfers across it are copied from a device to it, and from it to a device."""


class EngineCounts(_Strict):
    """The numbers of copy engines of a device by kind; as many as its links carry where none is given."""

    total: _Count | None = None
    """Engines for copies of every kind together: CUDA's ``asyncEngineCount``."""
    host_to_device: _Count | None = None
    device_to_host: _Count | None = None
    peer: _Count | None = None


class OverheadTimes(_Strict):
    """The time that messages take from a device's arithmetic, where its own processor moves them."""

    message_us: NotNegative = 0.0
    byte_ns: NotNegative = 0.0
    add_byte_ns: NotNegative = 0.0

    @property
    def in_seconds(self) -> MessageOverhead:
        """Overhead in SI units."""
        return MessageOverhead(
            message_s=self.message_us * MICRO, byte_s=self.byte_ns * NANO, add_byte_s=self.add_byte_ns * NANO
        )


class ReserveSizes(_Strict):
    """What of a device's memory the tensors of a network cannot have."""

    fixed_gib: NotNegative
    """Context, workspaces and communication buffers."""
    share: Annotated[float, Field(ge=0, le=0.5), _Number]

    @property
    def in_bytes(self) -> MemoryReserve:
        """Reserve in SI units."""
        return MemoryReserve(fixed_bytes=self.fixed_gib * GIB, share=self.share)


class DeviceGroup(_Group):
    """A group of devices."""

    profile: Annotated[str, Field(min_length=1)]
    """Compute profile, a name or a path."""
    memory_gib: _Positive
    memory_reserve: ReserveSizes = ReserveSizes(fixed_gib=GPU_RESERVE.fixed_bytes / GIB, share=GPU_RESERVE.share)
    node: Index = 0
    """Machine within the level, for files that list several machines in one level."""
    copy_engines: EngineCounts = EngineCounts()
    message_overhead: OverheadTimes = OverheadTimes()
    communication_channels: Index = 0
    """Multiprocessors that messages occupy: channels of the communication library."""
    step_spread: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False), _Number] = 0.0
    """Standard deviation of a device's time in an iteration, as a share of its mean."""
    board_speed: Annotated[float, Field(gt=0, le=1), _Number] = 1.0
    """Speed while all devices of the group, which share a board, compute; relative to that of one alone."""

    @property
    def memory_bytes(self) -> float:
        """Memory of one device in bytes."""
        return self.memory_gib * GIB


class LinkRule(_Strict):
    """A rule for links between every vertex of one pattern and every vertex of another.

    ``*``, ``?`` and ``[01]`` match within a name.  ``machine/nic0`` is vertex ``nic0`` of every child where
    the level below is called ``machine``, and ``machine3/nic0`` that of one child.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    between: tuple[str, str]
    link_class: Annotated[str, Field(alias="class")]
    count: _Positive = 1
    """Number of parallel cables, which act as one link with the sum of their bandwidths; a share of one, too."""
    each: _Count | None = None
    """Number of repetitions, with ``{i}`` in the patterns as 0, 1, ..."""


class Level(_Strict):
    """One level, such as a machine, with the vertices and links that it adds to the level below."""

    name: VertexName
    count: _Count | None = None
    """Number of copies of the level below in it; together with ``at_most``, in all its copies."""
    at_most: _Count | None = None
    """Largest number in one copy of this level; there are as many copies as needed, the last may be partial."""
    is_node: bool = False
    """Flag that each copy is one machine; without it copies of the innermost level are machines."""
    devices: tuple[DeviceGroup, ...] = ()
    switches: tuple[SwitchGroup, ...] = ()
    links: tuple[LinkRule, ...] = ()


class ClusterFile(_Strict):
    """A whole cluster file, with numbers in place of parameters."""

    version: Literal[1]
    name: Annotated[str, Field(min_length=1)]
    description: str = ""
    sources: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    """What no source says: a user should know of it, and may put numbers of their own in its place."""
    fit: Mapping[str, Any] = {}
    """How the section ``library`` was fitted: method, errors, what stays at its prior; read by people."""
    parameters: Mapping[VertexName, ParameterRule] = {}
    link_classes: Mapping[VertexName, LinkClass] = {}
    library: LibrarySection | None = None
    levels: tuple[Level, ...]
    routing: Literal["adaptive", "hashed"] = "adaptive"
    """How traffic is spread over routes of one length: one serves all, or a hash of the two devices picks one."""

    @model_validator(mode="after")
    def _counts_fit(self) -> Self:
        """Raise where counts of levels are missing or contradict each other."""
        # Not a minimum length in the type: pydantic would also report it for a list whose only item is wrong.
        if not self.levels:
            raise ValueError("levels needs at least one level, got none")
        divided = False  # true where the level below this one says at_most
        for i, level in enumerate(self.levels):
            if i == 0 and (level.count or level.at_most):
                raise ValueError(f"levels.0 ({level.name}) is innermost and takes no count or at_most")
            if i and divided == bool(level.count):
                rule = "takes no count: it holds all copies of" if divided else "needs a count of"
                raise ValueError(f"levels.{i} ({level.name}) {rule} {self.levels[i - 1].name}")
            divided = level.at_most is not None
        if divided:
            raise ValueError(f"levels.{len(self.levels) - 1} is outermost and takes no at_most")
        return self

    @model_validator(mode="after")
    def _transports_fit(self) -> Self:
        """Raise where links inside machines have a transport, it is not known, or two would be used at once."""
        named = {name: each.transport for name, each in self.link_classes.items() if each.transport is not None}
        machine = next((i for i, level in enumerate(self.levels) if level.is_node), 0)
        lists_machines = any(group.node for level in self.levels for group in level.devices)
        far = {rule.link_class for level in self.levels[0 if lists_machines else machine + 1 :] for rule in level.links}
        for name, transport in named.items():
            try:
                load_transport(transport)
            except ConfigError as error:
                raise ValueError(f"link_classes.{name}.{error}") from None
            if name not in far:
                between = ", ".join(sorted(far)) or "none"
                raise ValueError(
                    f"link_classes.{name}.transport must be of links between machines ({between}), got {transport!r}"
                )
        if len(set(named.values())) > 1:
            raise ValueError(f"link_classes must have one transport, got {', '.join(sorted(set(named.values())))}")
        return self

    @property
    def transport(self) -> NetworkTransport:
        """Transport of the links between machines."""
        named = [each.transport for each in self.link_classes.values() if each.transport is not None]
        return load_transport(named[0] if named else DEFAULT_TRANSPORT)
