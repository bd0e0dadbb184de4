"""A TCP port for servers that the tests start."""

import socket


def free_port() -> int:
    """Return a TCP port that is free on the loopback interface now; another process may take it before it is used."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
