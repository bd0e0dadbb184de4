"""Reader of the table that ``nvidia-smi topo -m`` prints.

The table shows, for each pair of GPUs and network cards, the NVLinks between them or else the level of the PCIe
tree at which they meet.  It does not show the PCIe relation of pairs with NVLink.
"""

import re
from collections.abc import Mapping, Sequence

from groundwork.control_characters import printable
from groundwork.errors import ConfigError
from hwprofiles.readers.facts import BELOW_HOST, Card, Gpu, Topology

_WORDS = {"PIX": 0, "PXB": 1, "PHB": 2, "NODE": 3, "SYS": 4, "SOC": 4}
"""Level at which the pairs of each word meet, an index into ``LEVEL_NAMES``."""
_MOST_NVLINKS = 18
"""Largest number of NVLinks of one GPU (H100).  A table with more in a row counts the same links to an NVSwitch once
for each peer."""
_MOST_ENTRIES = 256
"""Largest number of GPUs and cards of one machine, eight times as many as of the largest that is known."""
ANSI = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequences of terminals."""
_LEGEND = re.compile(r"(NIC\d+):\s+([A-Za-z_][A-Za-z0-9_.-]*)\s*")


def topology_of_table(text: str, origin: str) -> Topology:
    """Return what a table says.

    Raises:
        ConfigError: There is no table, a row is missing or too short, a word is unknown, or the table contradicts
            itself.
    """
    names, cells, affinity = _table(text)
    order = sorted(range(len(names)), key=lambda i: not names[i].startswith("GPU"))  # devices first, order kept
    count = sum(entry.startswith("GPU") for entry in names)
    cells = [[cells[i][j] for j in order] for i in order]
    lanes = tuple(tuple(int(word[2:]) if word.startswith("NV") else 0 for word in row[:count]) for row in cells[:count])
    switched = count > 2 and max(sum(row) for row in lanes) > _MOST_NVLINKS
    near = [affinity.get(names[i], "") for i in order[:count]]
    levels = tuple(
        tuple(_WORDS.get(word) if word[:2] != "NV" else _hidden(near, i, j) for j, word in enumerate(row))
        for i, row in enumerate(cells)
    )
    check_levels(levels, [names[i] for i in order], "topology table")
    called = dict(_LEGEND.findall(ANSI.sub("", text)))
    return Topology(
        origin=origin,
        gpus=tuple(Gpu(affinity=each) for each in near),
        cards=tuple(Card(name=called.get(names[i], names[i])) for i in order[count:]),
        levels=levels,
        nvlinks=tuple((0,) * count for _ in lanes) if switched else lanes,
        switch_links=tuple(max(row) for row in lanes) if switched else (),
    )


def _hidden(near: Sequence[str], a: int, b: int) -> int | None:
    """Return the level of two GPUs that NVLinks hide: their socket, where they are near the same processors.

    Where all GPUs of the machine are near the same processors, that says nothing of sockets.
    """
    return _WORDS["NODE"] if near[a] and near[a] == near[b] and len(set(near)) > 1 else None


def _table(text: str) -> tuple[list[str], list[list[str]], Mapping[str, str]]:
    """Return the names of the table's rows, its checked entries, and the processors near each."""
    lines = [line.split() for line in ANSI.sub("", text).splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if re.fullmatch(r"GPU\d+", line[0])), None)
    if first is None:
        raise ConfigError("topology table must start with a line of GPU names, got none")
    header = lines[first]
    # Columns of CPU and NUMA affinities follow the names.
    end = next((i for i, word in enumerate(header) if word in ("CPU", "NUMA", "GPU")), len(header))
    names = header[:end]
    if len(names) > _MOST_ENTRIES:
        raise ConfigError(f"topology table must have at most {_MOST_ENTRIES} columns, got {len(names)}")
    if len(set(names)) < len(names):
        raise ConfigError(f"topology table must name each column once, got {printable(' '.join(names))[:80]}")
    rows: dict[str, list[str]] = {}
    for line in lines[first + 1 :]:
        if line[0] in names:
            if line[0] in rows and rows[line[0]] != line[1:]:
                raise ConfigError(f"topology table must have one row {line[0]}, got two that differ")
            rows[line[0]] = line[1:]
    for row in names:
        if len(rows.get(row, ())[:end]) != end:
            raise ConfigError(f"topology row {row} must have {end} entries, got {len(rows.get(row, ()))}")
    cells = [rows[row][:end] for row in names]
    for i, row in enumerate(names):
        for j, column in enumerate(names):
            _check(row, column, cells[i][j], cells[j][i])
    return names, cells, {row: rows[row][end] for row in names if len(rows[row]) > end}


def _check(row: str, column: str, word: str, mirrored: str) -> None:
    """Raise where an entry is unknown or differs from the mirrored one."""
    gpus = row.startswith("GPU") and column.startswith("GPU")
    known = word == "X" if row == column else word in _WORDS or (gpus and re.fullmatch(r"NV[1-9]\d?", word))
    if not known:
        rule = "X" if row == column else f"NV# or one of {', '.join(_WORDS)}"
        raise ConfigError(f"topology entry {row}, {column} must be {rule}, got {printable(word)[:40]!r}")
    if word != mirrored:
        raise ConfigError(
            f"topology entry {row}, {column} must equal {column}, {row}, got {word!r} and {printable(mirrored)[:40]!r}"
        )


def check_levels(levels: Sequence[Sequence[int | None]], names: Sequence[str], what: str) -> None:
    """Raise where two entries meet farther apart than a third one allows that is near both."""

    def place(level: int | None) -> int | None:
        """Return 0 below a host bridge, 1 in one socket, 2 across sockets."""
        return None if level is None else 0 if level <= BELOW_HOST else 1 if level < _WORDS["SYS"] else 2

    places = [[place(level) for level in row] for row in levels]
    for b in range(len(names)):
        for a in range(len(names)):
            for c in range(a):
                joined, first, second = places[a][c], places[a][b], places[b][c]
                if b in (a, c) or joined is None or first is None or second is None:
                    continue
                if joined > max(first, second):
                    raise ConfigError(
                        f"{what} contradicts itself: {names[a]} and {names[c]} are both near {names[b]}, but meet"
                        " farther apart"
                    )
