"""Chakra traces: what is written is read again, and numbers that its fields cannot hold are refused."""

import pytest
from hypothesis import given, strategies as st

from groundwork.errors import ConfigError
from simulator.formats import chakra
from simulator.formats.chakra import ChakraNode, read_chakra, write_chakra

LAST = 2**63 - 1
numbers = st.one_of(st.integers(0, 300), st.integers(0, LAST))
nodes = st.builds(
    ChakraNode,
    id=numbers,
    name=st.text(st.characters(exclude_categories=["C"]), max_size=5),
    type=st.sampled_from(["compute", "send", "receive", "collective", "load", "store", "metadata"]),
    after=st.lists(numbers, max_size=3, unique=True).map(tuple),
    duration_us=numbers,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("trace") / "trace.0.et"


@given(rows=st.lists(nodes, min_size=1, max_size=4, unique_by=lambda node: node.id))
def test_nodes_are_read_as_they_were_written(path, rows):
    write_chakra(path, rows)
    assert read_chakra(path) == rows


@pytest.mark.parametrize("fields", [{"id": LAST + 1}, {"id": 0, "after": (LAST + 1,)}])
def test_numbers_of_nodes_have_63_bits(path, fields):
    write_chakra(path, [ChakraNode(name="", type="compute", **fields)])
    with pytest.raises(ConfigError, match="numbers of nodes must fit in 63 bits"):
        read_chakra(path)


@pytest.mark.parametrize(("coded", "value"), [(0, 0), (1, -1), (2, 1), (3, -2), (4294967294, 2147483647)])
def test_signed_attributes_are_zigzag_numbers(coded, value):
    """The table of Protocol Buffers, "Encoding", Signed Integers; field 15 of Chakra is an sint32, 9 an int64."""
    message = chakra._text(1, "x") + chakra._integer(min(chakra._ZIGZAG), coded)
    assert chakra._read_attribute(message, "x") == {"x": value}
    assert chakra._attribute("x", value) == b"\x0a\x01x\x48" + chakra._varint(value % 2**64)
