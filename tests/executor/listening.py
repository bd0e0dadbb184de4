"""Sockets that listen, as the kernel lists them."""

import ipaddress
from pathlib import Path

__all__ = ["listened_at"]

LISTENS, WORD_BYTES = "0A", 4
"""State of a socket in /proc/net/tcp; addresses are there in words, in the machine's order of bytes."""


def listened_at(pid: int, *, own: bool) -> set[tuple[str, int]]:
    """Return addresses and TCP ports at which a process listens, or anything in its network.

    Args:
        pid: Process; one that has ended listens nowhere.
        own: Only sockets that the process itself has open.
    """
    found = set()
    try:
        opened = {path.readlink().name for path in Path(f"/proc/{pid}/fd").iterdir()} if own else set()
        for table in ("tcp", "tcp6"):
            rows = (line.split() for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:])
            for row in rows:
                if row[3] == LISTENS and (not own or f"socket:[{row[9]}]" in opened):
                    address, port = row[1].split(":")
                    found.add((str(_address(bytes.fromhex(address))), int(port, 16)))
    except OSError:  # it has ended, or has just closed a file
        return found
    return found


def _address(words: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    packed = b"".join(words[i : i + WORD_BYTES][::-1] for i in range(0, len(words), WORD_BYTES))
    address = ipaddress.ip_address(packed)
    return getattr(address, "ipv4_mapped", None) or address
