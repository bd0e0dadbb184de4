"""Execution traces of MLCommons Chakra: nodes as protobuf messages, each after its length, one file a rank.

Only the wire format is here: what a file holds, whichever program wrote it.  Unknown fields are passed over, as
protobuf asks of readers.

Source:
    Sridharan et al., "Chakra: Advancing Performance Benchmarking and Co-design using Standardized Execution Traces",
    2023, and the schema et_def.proto (mlcommons/chakra, schema/protobuf), version 0.0.4.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from groundwork.control_characters import printable
from groundwork.errors import ConfigError
from groundwork.input_files import input_bytes
from simulator.formats.whole_files import whole_file

_VERSION = "0.0.4"
_MOST_NODES, _MOST_TEXT, _MOST_VARINT = 5_000_000, 1 << 16, 10
_TYPES = ("invalid", "metadata", "load", "store", "compute", "send", "receive", "collective")
CHAKRA_COLLECTIVES = (
    "all-reduce",
    "reduce",
    "all-gather",
    "gather",
    "scatter",
    "broadcast",
    "all-to-all",
    "reduce-scatter",
    "reduce-scatter-block",
    "barrier",
)
"""Names of the schema's collectives by number."""
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
"""Wire types."""
_INTEGERS = {7: True, 9: True, 11: False, 13: False}
"""Fields of an attribute that hold integers of 32 or 64 bits, and whether they are signed."""
_ZIGZAG = (15, 17)
_Value = int | float | bool | str
"""_Value of an attribute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChakraNode:
    """One operation of a rank."""

    id: int
    name: str
    type: str
    """``compute``, ``send``, ``receive``, ``collective``, ``load``, ``store``, ``metadata`` or ``invalid``."""
    after: tuple[int, ...] = ()
    """Nodes of the same rank that must end before: control dependencies and data dependencies together."""
    duration_us: int = 0
    attributes: Mapping[str, _Value] = field(default_factory=dict)


def write_chakra(path: Path, nodes: Sequence[ChakraNode]) -> None:
    """Write the trace of one rank, whole or not at all.

    Args:
        path: File to write.
        nodes: Its operations; what they wait for is written as data dependencies.

    Raises:
        ConfigError: The file cannot be written.
    """
    with whole_file(path) as file:
        for message in (_text(1, _VERSION), *map(_node, nodes)):
            file.write(_varint(len(message)) + message)


def read_chakra(path: Path) -> list[ChakraNode]:
    """Return the operations of one rank.

    Raises:
        ConfigError: The file is cut off, is no such trace, or a number is used for two nodes.
    """
    content, what = input_bytes(path, "Chakra trace"), f"Chakra trace {path}"
    nodes: list[ChakraNode] = []
    at, first = 0, True
    while at < len(content):
        size, at = _number(content, at, what)
        if at + size > len(content):
            raise ConfigError(f"{what} is cut off: a message has {size:,} bytes, {len(content) - at:,} are left")
        if not first:  # the first message describes the whole trace
            nodes.append(_read_node(content[at : at + size], what))
        if len(nodes) > _MOST_NODES:
            raise ConfigError(f"{what} must have at most {_MOST_NODES:,} nodes")
        at, first = at + size, False
    if not nodes:
        raise ConfigError(f"{what} has no nodes")
    if len({node.id for node in nodes}) < len(nodes):
        raise ConfigError(f"{what} must use each number for one node")
    return nodes


def _varint(value: int) -> bytes:
    """Return a non-negative number in groups of seven bits, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _integer(key: int, value: int) -> bytes:
    return _varint(key << 3 | _VARINT) + _varint(value & (1 << 64) - 1)


def _bytes(key: int, value: bytes) -> bytes:
    return _varint(key << 3 | _BYTES) + _varint(len(value)) + value


def _text(key: int, value: str) -> bytes:
    return _bytes(key, value.encode())


def _node(node: ChakraNode) -> bytes:
    """Return the message of a node."""
    message = _integer(1, node.id) + _text(2, node.name) + _integer(3, _TYPES.index(node.type))
    if node.after:
        message += _bytes(5, b"".join(map(_varint, node.after)))
    message += _integer(7, node.duration_us)
    return message + b"".join(_bytes(10, _attribute(name, value)) for name, value in node.attributes.items())


def _attribute(name: str, value: _Value) -> bytes:
    """Return the message of an attribute: a bool, an int64, a double or a string."""
    if isinstance(value, bool):
        return _text(1, name) + _integer(27, int(value))
    if isinstance(value, int):
        return _text(1, name) + _integer(9, value)
    if isinstance(value, float):
        return _text(1, name) + _varint(3 << 3 | _FIXED_64) + struct.pack("<d", value)
    return _text(1, name) + _text(29, value)


def _number(content: bytes, at: int, what: str) -> tuple[int, int]:
    """Return a number and where the next byte is."""
    value = 0
    for place in range(_MOST_VARINT):
        if at + place >= len(content):
            raise ConfigError(f"{what} is cut off within a number")
        byte = content[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ConfigError(f"{what} is no Chakra trace: a number has more than {_MOST_VARINT} bytes")


def _fields(message: bytes, what: str) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield the number, wire type and value of each field of a message."""
    at = 0
    while at < len(message):
        key, at = _number(message, at, what)
        wire = key & 7
        if wire == _VARINT:
            number, at = _number(message, at, what)
            yield key >> 3, wire, number
            continue
        size = {_FIXED_64: 8, _FIXED_32: 4}.get(wire, -1)
        if wire == _BYTES:
            size, at = _number(message, at, what)
        if size < 0:
            raise ConfigError(f"{what} is no Chakra trace: a field has the wire type {wire}")
        if at + size > len(message):
            raise ConfigError(f"{what} is cut off within a field")
        yield key >> 3, wire, message[at : at + size]
        at += size


def _read_node(message: bytes, what: str) -> ChakraNode:
    """Return the node of a message."""
    numbers = {1: 0, 3: 0, 7: 0}
    name, after, attributes = "", list[int](), dict[str, _Value]()
    for key, _, value in _fields(message, what):
        if key in numbers and isinstance(value, int):
            numbers[key] = value
        elif key == 2 and isinstance(value, bytes):
            name = _read_text(value, what)
        elif key in (4, 5):  # packed or one by one
            after += [value] if isinstance(value, int) else _packed(value, what)
        elif key == 10 and isinstance(value, bytes):
            attributes |= _read_attribute(value, what)
    if not 0 < numbers[3] < len(_TYPES):
        raise ConfigError(f"{what}: node {numbers[1]} must have a type in 1 .. {len(_TYPES) - 1}, got {numbers[3]}")
    if numbers[1] >= 1 << 63 or any(each >= 1 << 63 for each in after):
        raise ConfigError(f"{what}: numbers of nodes must fit in 63 bits")
    return ChakraNode(
        id=numbers[1],
        name=name,
        type=_TYPES[numbers[3]],
        after=tuple(dict.fromkeys(after)),
        duration_us=numbers[7],
        attributes=attributes,
    )


def _packed(content: bytes, what: str) -> list[int]:
    """Return the numbers of a packed list."""
    numbers, at = list[int](), 0
    while at < len(content):
        number, at = _number(content, at, what)
        numbers.append(number)
    return numbers


def _read_text(value: bytes, what: str) -> str:
    """Return a text."""
    try:
        return printable(value[:_MOST_TEXT].decode())
    except UnicodeDecodeError:
        raise ConfigError(f"{what} is no Chakra trace: a name is not text in UTF-8") from None


def _read_attribute(message: bytes, what: str) -> dict[str, _Value]:
    """Return an attribute with a single value; lists, which nothing here reads, are passed over."""
    name, found = "", list[_Value]()
    for key, wire, value in _fields(message, what):
        if key == 1 and isinstance(value, bytes):
            name = _read_text(value, what)
        elif key == 29 and isinstance(value, bytes):
            found.append(_read_text(value, what))
        elif key == 3 and wire == _FIXED_64 and isinstance(value, bytes):
            found.append(float(struct.unpack("<d", value)[0]))
        elif key == 5 and wire == _FIXED_32 and isinstance(value, bytes):
            found.append(float(struct.unpack("<f", value)[0]))
        elif isinstance(value, int) and key == 27:
            found.append(bool(value))
        elif isinstance(value, int) and key in _INTEGERS:
            found.append(value - (1 << 64) if _INTEGERS[key] and value >= 1 << 63 else value)
        elif isinstance(value, int) and key in _ZIGZAG:
            found.append((value >> 1) ^ -(value & 1))
        elif key in (19, 21) and isinstance(value, bytes):
            found.append(int.from_bytes(value, "little"))
        elif key in (23, 25) and isinstance(value, bytes):
            found.append(int.from_bytes(value, "little", signed=True))
    return {name: found[-1]} if found else {}
