"""Sockets that listen, as the kernel lists them."""

import ipaddress
from contextlib import suppress
from pathlib import Path

LISTENS, WORD_BYTES = "0A", 4
"""State of a socket in /proc/net/tcp; addresses are there in words, in the machine's order of bytes."""


def listening(pid: int) -> dict[str, tuple[str, int]]:
    """Return address and TCP port of all sockets that listen in the network of a process, by the sockets' names."""
    found = {}
    try:
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                row = line.split()
                if row[3] == LISTENS:
                    address, port = row[1].split(":")
                    found[f"socket:[{row[9]}]"] = str(_address(bytes.fromhex(address))), int(port, 16)
    except OSError:  # it has ended
        return found
    return found


def listened_at(pid: int, *, own: bool, sockets: dict[str, tuple[str, int]] | None = None) -> set[tuple[str, int]]:
    """Return addresses and TCP ports at which a process listens, or anything in its network.

    Args:
        pid: Process; one that has ended listens nowhere.
        own: Only sockets that the process itself has open.
        sockets: What listens in its network, if it has been read just now, which takes milliseconds.
    """
    if sockets is None:
        sockets = listening(pid)
    if not own:
        return set(sockets.values())
    found = set()
    with suppress(OSError):  # it has ended, or has just closed a file
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                name = path.readlink().name
                if name in sockets:
                    found.add(sockets[name])
    return found


def _address(words: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    packed = b"".join(words[i : i + WORD_BYTES][::-1] for i in range(0, len(words), WORD_BYTES))
    address = ipaddress.ip_address(packed)
    return getattr(address, "ipv4_mapped", None) or address
