"""The transport between machines, as names of network cards and lines of NCCL's log show it."""

import re

from groundwork.errors import ConfigError

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
