"""The server: one address of this machine, and the loop that serves it until it is told to end."""

import errno
import secrets
import socket
from pathlib import Path

from hwprofiles import ConfigError
from orrery.workbench.working_folder import WorkingFolder

__all__ = ["serve_workbench"]

_LOOPBACK = "127.0.0.1"
_TOKEN_BYTES = 24
_GRACE_S = 1
"""Time that open streams have to end when the server does."""


def serve_workbench(path: Path, *, port: int) -> None:
    """Serve the workbench on this machine alone, until Ctrl-C.

    Args:
        path: Working folder; made where it is missing.
        port: Port; 0 for any that is free.

    Raises:
        ConfigError: The folder cannot be written, or the port cannot be had.
    """
    folder = WorkingFolder(path)
    listening = _listening(port)  # what is wrong is said at once, before seconds of imports
    import uvicorn

    from orrery.workbench.application import application

    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    config = uvicorn.Config(
        application(folder, token=token, port=port), log_level="error", access_log=False, ws="none", http="h11",
        server_header=False, proxy_headers=False, timeout_graceful_shutdown=_GRACE_S,
    )  # fmt: skip
    print(f"Workbench: http://{_LOOPBACK}:{port}/{token}/", flush=True)
    print(f"Files: {folder.path}; Ctrl-C ends.", flush=True)
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _listening(port: int) -> socket.socket:
    """Return a socket that listens on the loopback address.

    Raises:
        ConfigError: Another process has the port, or this user may not have it.
    """
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((_LOOPBACK, port))
        found.listen()
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port must be free, got {port}, which another process uses; --port 0 takes any"
            ) from None
        raise ConfigError(f"port must be one that can be had, got {port}: {error.strerror}") from None
    return found
