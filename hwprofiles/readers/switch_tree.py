"""Reader of Slurm's ``topology.conf``: the tree of network switches above the machines."""

import re
from collections.abc import Mapping
from itertools import product

from groundwork.control_characters import printable
from groundwork.errors import ConfigError
from hwprofiles.readers.facts import SwitchTree

SWITCH_LINE = re.compile(r"^\s*SwitchName\s*=\s*(\S+)(.*)$", re.MULTILINE | re.IGNORECASE)
_MOST_MACHINES = 100_000
_LONGEST_NAME = 256
_Children = Mapping[str, tuple[bool, list[str]]]
"""Whether the children of each switch are machines, and their names."""


def switch_tree(text: str, origin: str) -> SwitchTree:
    """Return the numbers of machines and switches of a tree.

    Raises:
        ConfigError: A switch has no children or two kinds of them, a child has two parents, the switches form no one
            tree, or machines are at different depths.
    """
    switches = _switches(re.sub(r"#.*", "", re.sub(r"\\\r?\n", " ", text)), origin)
    parents: dict[str, str] = {}
    for name, (_, children) in switches.items():
        for child in children:
            if child in parents:
                raise ConfigError(
                    f"{origin} contradicts itself: {child} is below {parents[child]} and {name}"
                    if parents[child] != name
                    else f"{origin}: {child} must be listed once, got it twice below {name}"
                )
            parents[child] = name
    roots = [name for name in switches if name not in parents]
    if len(roots) != 1:
        raise ConfigError(f"{origin} must have one switch above all others, got {len(roots)}: {', '.join(roots[:4])}")
    most: list[int] = []
    even, level = True, roots
    while level:
        kinds = {switches[name][0] for name in level}
        if len(kinds) > 1:
            raise ConfigError(f"{origin}: all machines must be equally many switches below {roots[0]}")
        counts = [len(switches[name][1]) for name in level]
        most.append(max(counts))
        even = even and len(set(counts)) == 1
        below = [child for name in level for child in switches[name][1]]
        if kinds == {True}:
            return SwitchTree(origin=origin, machines=len(below), most_below=tuple(most[::-1]), even=even)
        level = below
        if len(most) > len(switches):
            break
    raise ConfigError(f"{origin} must end in machines")


def _switches(text: str, origin: str) -> dict[str, tuple[bool, list[str]]]:
    """Return each switch with its children."""
    switches: dict[str, tuple[bool, list[str]]] = {}
    total = 0
    for match in SWITCH_LINE.finditer(text):
        keys = {key.lower(): value for key, value in re.findall(r"(\w+)\s*=\s*(\S+)", match[2])}
        given = [key for key in ("nodes", "switches") if key in keys]
        if len(given) != 1:
            raise ConfigError(
                f"{origin}: switch {printable(match[1])[:40]} must have Nodes or Switches,"
                f" got {' and '.join(given) or 'none'}"
            )
        names = _host_list(keys[given[0]], origin)
        own = _host_list(match[1], origin)
        total += len(names) * len(own)
        if total > _MOST_MACHINES:
            raise ConfigError(f"{origin} must list at most {_MOST_MACHINES:,} machines and switches")
        for switch in own:
            if switch in switches:
                raise ConfigError(f"{origin} must list each switch once, got {switch} twice")
            switches[switch] = (given[0] == "nodes", names)
    for name, (machines, children) in switches.items():
        unknown = [child for child in children if not machines and child not in switches]
        if unknown:
            raise ConfigError(f"{origin}: {name} joins the switch {unknown[0]}, which is not listed")
    return switches


def _host_list(text: str, origin: str) -> list[str]:
    """Return the names that an expression such as ``a[01-03,7]b,c`` stands for."""
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text):
        pieces = re.split(r"\[([^\[\]]*)\]", part)
        choices: list[list[str]] = []
        size, length = 1, 0
        for i, piece in enumerate(pieces):
            choices.append([piece] if i % 2 == 0 else _numbers(piece, origin))
            size, length = size * len(choices[-1]), length + len(choices[-1][0])
            if size + len(names) > _MOST_MACHINES:
                raise ConfigError(f"{origin} must list at most {_MOST_MACHINES:,} machines and switches")
            if length > _LONGEST_NAME:
                raise ConfigError(f"{origin}: names must have at most {_LONGEST_NAME} characters, got more")
        names += ["".join(chosen) for chosen in product(*choices)]
    if text.count("[") != text.count("]") or not names:
        raise ConfigError(f"{origin}: {printable(text)[:60]!r} is no list of names")
    return names


def _numbers(text: str, origin: str) -> list[str]:
    """Return the numbers of a list of ranges such as ``01-03,7``, with their leading zeros."""
    numbers: list[str] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part, re.ASCII)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise ConfigError(f"{origin}: {printable(part)[:40]!r} is no range of numbers")
        first, last = int(match[1]), int(match[2] or match[1])
        if len(numbers) + last - first >= _MOST_MACHINES:
            raise ConfigError(f"{origin} must list at most {_MOST_MACHINES:,} machines and switches")
        numbers += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
    return numbers
