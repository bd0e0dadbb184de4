"""Files from the wild: what is no regular file, too large, too deep or full of aliases is refused before it is read."""

import os
import socket
import sys
import time

import pytest
import yaml
from hypothesis import given, strategies as st

from groundwork.control_characters import check_texts, printable
from groundwork.errors import ConfigError
from groundwork.input_files import INPUT_LIMIT, input_bytes, json_input, last_input, yaml_input
from groundwork.input_values import MOST_LEVELS, parsed_yaml

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text("ab:#*&-é\n"),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text("abc", min_size=1), part, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_values_are_those_of_the_library(value):
    text = yaml.safe_dump(value)
    assert parsed_yaml(text, "file x") == yaml.safe_load(text)


def read(tmp_path, text, reader=yaml_input):
    path = tmp_path / "x"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return reader(path, "plan file")


@pytest.mark.parametrize("reader", [yaml_input, json_input, input_bytes])
def test_only_regular_files_are_read(tmp_path, reader):
    """Neither waits for a writer nor fills the memory."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name, said in {
            tmp_path: "must be a regular file, got a folder",
            tmp_path / "pipe": "must be a regular file, got a pipe",
            tmp_path / "socket": "cannot be read: No such device or address",
            "/dev/zero": "must be a regular file, got a device",
            tmp_path / "loop": "cannot be read: Too many levels of symbolic links",
            tmp_path / "none": "cannot be read: No such file or directory",
            tmp_path / ("n" * 300): "cannot be read: File name too long",
            "a\0b": "is no name of a file",
        }.items():
            with pytest.raises(ConfigError, match=said):
                reader(name, "plan file")


def test_sizes_are_limited_and_the_message_says_how_to_raise_it(tmp_path, monkeypatch):
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(9 * 2**20)
    with pytest.raises(ConfigError, match=r"must have at most 8 MiB, got 9; orrery --max-input-mib 10 \.\.\. reads it"):
        yaml_input(path, "cluster file")
    monkeypatch.setenv(INPUT_LIMIT, "10")
    assert len(input_bytes(path, "cluster file", limit_mib=1)) == 9 * 2**20


@pytest.mark.parametrize("brackets", ["[]", "{}"])
@pytest.mark.parametrize("reader", [yaml_input, json_input])
def test_nesting_is_limited(tmp_path, reader, brackets):
    def nested(levels):
        first, last = ("[", "]") if brackets == "[]" else ('{"a": ', "}")
        return first * levels + "1" + last * levels

    assert read(tmp_path, nested(MOST_LEVELS), reader)
    for levels in (MOST_LEVELS + 1, 1_000, 100_000):
        start_s = time.monotonic()
        with pytest.raises(ConfigError, match=r"nested (at most 64 levels|too) deep|not complete JSON|cut off"):
            read(tmp_path, nested(levels), reader)
        assert time.monotonic() - start_s < 20


def test_aliases_are_counted_before_they_are_expanded(tmp_path):
    """Ten levels of ten aliases each would be ten thousand million values."""
    rows = ["a0: &a0 [1, 2]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 11)]
    assert read(tmp_path, "\n".join(rows[:4]))["a3"][9][9][9] == [1, 2]
    with pytest.raises(ConfigError, match="at most 2,000,000 values, aliases expanded"):
        read(tmp_path, "\n".join(rows))
    with pytest.raises(ConfigError, match=r"\*a must not contain itself"):
        read(tmp_path, "a: &a [1, {b: *a}]")
    chain = ["a0: &a0 [1]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 5_000)]
    with pytest.raises(ConfigError, match="at most 64 levels"):
        read(tmp_path, "\n".join(chain))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version: " + "9" * 5_000, "numbers must have at most 100 digits, got 5000"),
        ("version: " + "9" * 50, "integers must fit in 64 bits, got one of 167 bits"),
        ("version: 0x" + "f" * 20, "integers must fit in 64 bits"),
        ("? 99999999999999999999\n: 1", "integers must fit in 64 bits"),
        ("on: 2026-13-45", "holds a value that cannot be read"),
        (r'note: "\e[2J"', r"must hold no control characters, got '\\x1b\[2J'"),
        (r'"a\x9bm": 1', "must hold no control characters"),
        ('note: "\u202egnp"', "must hold no control characters"),
        ("a: *b", "is not YAML or is cut off"),
        ("a: !!python/object/apply:os.system [id]", "is not YAML"),
        (b"\xff\xfe\x00", "must be text in UTF-8"),
    ],
)
def test_values_that_nobody_expects_are_refused(tmp_path, text, said):
    with pytest.raises(ConfigError, match=said) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"plan file {tmp_path / 'x'}")
    assert last_input() == f"plan file {tmp_path / 'x'}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("9" * 5_000, "is not complete JSON: Integer value out of range"),
        ("[1, " + "9" * 30 + "]", "integers must fit in 64 bits"),
        (r'{"note": "\u001b[2J"}', "must hold no control characters"),
        ('{"a": 1', "is not complete JSON"),
        (b"\xff", "is not complete JSON"),
    ],
)
def test_values_in_json_are_limited_alike(tmp_path, text, said):
    with pytest.raises(ConfigError, match=said):
        read(tmp_path, text, json_input)


@given(st.text())
def test_what_is_printed_steers_no_terminal(text):
    shown = printable(text)
    check_texts([shown], "it")
    shown.encode()
    assert shown == text or any(not char.isprintable() for char in text)


def test_lists_of_integers_are_checked_as_a_whole(tmp_path):
    """A plan for thousands of devices lists them for every layer."""
    rows = [list(range(8_192))] * 100
    assert read(tmp_path, str(rows), json_input) == rows
    with pytest.raises(ConfigError, match="64 bits"):
        read(tmp_path, str([*rows, [1, sys.maxsize * 4]]), json_input)
