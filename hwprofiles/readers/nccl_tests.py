"""Readers of the output of nccl-tests (``all_reduce_perf`` and its kin), and of what NCCL's log says of its network."""

import math
import re
from collections.abc import Sequence

from groundwork.control_characters import printable
from groundwork.errors import ConfigError
from groundwork.units import MICRO
from hwprofiles.readers.facts import Collectives

_CARDS = (
    (re.compile(r"(rdmap|efa)\d", re.IGNORECASE), "efa"),
    (re.compile(r"(cxi|hsn)\d", re.IGNORECASE), "slingshot"),
    (re.compile(r"(mlx\d|ib|hfi)", re.IGNORECASE), "infiniband"),
    (re.compile(r"(eth|en[opsx])", re.IGNORECASE), "sockets"),
)
"""Beginnings of names by transport, those of libraries first: where a machine has several, its library takes these."""
_LOG = re.compile(
    r"(?:Using network|Selected [Pp]rovider is) ([A-Za-z][\w-]*(?: Libfabric)?)|NET/IB : Using [^\n]*/(RoCE)"
)
_NETWORKS = {
    "ib": "infiniband",
    "ibext": "infiniband",
    "ibext_v8": "infiniband",
    "roce": "roce",
    "socket": "sockets",
    "tcp": "sockets",
    "efa": "efa",
    "cxi": "slingshot",
    "fastrak": "tcpx",
    "gpudirecttcpx": "tcpx",
    "gpudirecttcpx_v7": "tcpx",
}
"""Networks and providers as NCCL and its plug-ins name them."""


def transport_of_cards(names: list[str]) -> str:
    """Return the transport that names of cards show, such as ``rdmap16s27`` of EFA; empty where they show none."""
    return next((name for pattern, name in _CARDS if any(pattern.match(card) for card in names)), "")


def transport_of_log(text: str, origin: str) -> str:
    """Return the transport that NCCL's log names (NCCL_DEBUG=INFO); empty where there is no log.

    Raises:
        ConfigError: It names two.
    """
    found = {_NETWORKS.get((network or roce).lower(), "") for network, roce in _LOG.findall(text)} - {""}
    if "roce" in found:
        found -= {"infiniband"}  # the same network, which the log names by its verbs too
    if len(found) > 1:
        raise ConfigError(f"{origin}: measurements must be of one transport, got {' and '.join(sorted(found))}")
    return found.pop() if found else ""


def release_of_log(text: str, origin: str) -> str:
    """Return the release that NCCL prints (NCCL_DEBUG=VERSION), such as ``2.18.3``; empty where it does not.

    Raises:
        ConfigError: There are two.
    """
    found = sorted(set(re.findall(r"NCCL version (\d{1,4}(?:\.\d{1,4}){1,3})", text)))
    if len(found) > 1:
        raise ConfigError(f"{origin}: measurements must be of one release of NCCL, got {' and '.join(found)}")
    return found[0] if found else ""


RESULT_HEADER = re.compile(r"^.*#\s+size\s.*time\s.*algbw\s.*busbw", re.MULTILINE)
_RANK = re.compile(
    r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)", re.ASCII
)
_MPI_PREFIX = re.compile(r"^\[\d+,\d+\]<std\w+>:?", re.MULTILINE)
_RESULTS = 8
"""Numbers of a row after the sizes: time, algorithm and bus bandwidth and errors, out of place and in place."""
_NAMES = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "broadcast": "broadcast",
    "alltoall": "all-to-all",
}
_LEAST_ROWS = 1


def collectives_of(text: str, origin: str) -> Collectives:
    """Return the measured times of a collective, out of place.

    Args:
        text: Output of one program of nccl-tests.
        origin: Kind and path of the file, for messages; where the output does not say which collective it is, the
            path may.

    Raises:
        ConfigError: Ranks or rows are missing, a time is not in microseconds or not a positive number, the
            collective is not known, or two transports or releases are named.
    """
    plain = _MPI_PREFIX.sub("", text)
    ranks = {int(match[1][:9]): (match[2], match[3].strip()) for match in _RANK.finditer(plain)}
    if sorted(ranks) != list(range(len(ranks))) or not ranks:
        raise ConfigError(f"{origin} must list its ranks 0, 1, ... with their machines, got {len(ranks)}")
    header = RESULT_HEADER.search(plain)
    units = re.findall(r"\((\w+)\)", "".join(plain[header.end() :].splitlines()[:2])) if header else []
    wrong = [unit for unit in units if unit in ("ms", "s", "ns", "sec")]
    if wrong:
        raise ConfigError(f"{origin}: times must be in us, got {wrong[0]!r}")
    rows = [words for line in plain[header.end() if header else 0 :].splitlines() if len(words := line.split()) > 9]
    rows = [row for row in rows if row[0].isascii() and row[0].isdigit()]
    if len(rows) < _LEAST_ROWS:
        raise ConfigError(f"{origin} has no rows of results: size, count, type, ..., time, algbw, busbw")
    collective = _collective(plain, origin, rows, len(ranks))
    used = [row for row in rows if float(row[0]) > 0]
    return Collectives(
        origin=origin,
        collective=collective,
        hosts=tuple(ranks[i][0] for i in range(len(ranks))),
        models=tuple(ranks[i][1] for i in range(len(ranks))),
        size_bytes=tuple(_positive(row[0], f"{origin}: size") for row in used),
        time_s=tuple(_positive(row[-_RESULTS], f"{origin}: time") * MICRO for row in used),
        transport=transport_of_log(plain, origin),
        release=release_of_log(plain, origin),
    )


def _collective(text: str, origin: str, rows: Sequence[Sequence[str]], ranks: int) -> str:
    """Return the collective: as the output says, else as the columns or the name of the file show."""
    said = re.search(r"Collective test starting:\s*(\w+?)_perf", text)
    if said:
        if said[1] not in _NAMES:
            known = ", ".join(_NAMES)
            raise ConfigError(f"{origin}: collective must be one of {known}, got {printable(said[1])[:40]!r}")
        return _NAMES[said[1]]
    last = rows[-1]  # the longest message, whose bandwidths have the most digits
    named = {name for name, ours in _NAMES.items() if name in origin or ours in origin}
    if "sum" in last:
        # Bus bandwidth relative to the algorithm's says which one it is.
        share = _share(last)
        if abs(share - 2 * (ranks - 1) / ranks) < 0.05:
            return "all-reduce"
        if ranks > 1 and abs(share - (ranks - 1) / ranks) < 0.05:
            return "reduce-scatter"
    elif len(named) == 1:
        return _NAMES[named.pop()]
    raise ConfigError(f"{origin} does not say which collective it is; name the file after it, as all_gather.txt")


def _share(row: Sequence[str]) -> float:
    """Return bus bandwidth over algorithm bandwidth of a row; NaN where it is too small to say."""
    try:
        algorithm, bus = float(row[-_RESULTS + 1]), float(row[-_RESULTS + 2])
    except ValueError:
        return math.nan
    return bus / algorithm if algorithm > 0 else math.nan


def _positive(word: str, where: str) -> float:
    """Return a positive number."""
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 < value < 1e18:
        raise ConfigError(f"{where} must be a number > 0, got {printable(word)[:20]!r}")
    return value
