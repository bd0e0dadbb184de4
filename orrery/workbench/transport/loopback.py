"""The server on the loopback address, and the signals that end it as they end every other command."""

import asyncio
import errno
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from groundwork.errors import ConfigError
from orrery.terminal.signals import ENDED_BY
from orrery.workbench.transport.connections import ACCEPTED_AT_ONCE, BoundedConnection

_LOOPBACK = "127.0.0.1"
_GRACE_S = 1
"""Time that open requests and streams have to end when the server does."""


def listening_socket(port: int) -> socket.socket:
    """Return a socket that listens on the loopback address.

    Args:
        port: Port; 0 for any that is free.

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


def serve_application(app: ASGIApp, listening: socket.socket, *, end: Callable[[], None]) -> None:
    """Serve an application until a signal ends the command.

    Args:
        app: The application.
        listening: Socket that listens.
        end: Ends whatever the application has started; called in the loop, while it answers nobody any more.

    Raises:
        KeyboardInterrupt: A signal has come: Ctrl-C, SIGTERM or SIGHUP.
    """
    config = uvicorn.Config(
        app,
        http=BoundedConnection,
        ws="none",
        backlog=ACCEPTED_AT_ONCE,
        timeout_graceful_shutdown=_GRACE_S,
        # What it logs of errors are tracebacks, also of clients that leave and of streams that end with the server.
        log_level="error" if os.environ.get("ORRERY_DEBUG") else "critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    with listening:
        _Server(config, end).run(sockets=[listening])


class _Server(uvicorn.Server):
    """A server that every signal of a command ends, whatever it does, with all that was started.

    Args:
        config: Settings.
        end: As of ``serve_application``.
    """

    def __init__(self, config: uvicorn.Config, end: Callable[[], None]) -> None:
        super().__init__(config)
        self._end = end

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ask the server to end at a signal; when it has, interrupt the command as that signal does."""
        asyncio.get_running_loop().set_exception_handler(_say)
        heard = [number for number in ENDED_BY if signal.getsignal(number) != signal.SIG_IGN]  # as nohup wants it
        before = {number: signal.signal(number, self.handle_exit) for number in heard}
        try:
            yield
        finally:
            self._end()
            for number, handler in before.items():
                signal.signal(number, handler)
        for captured in self._captured_signals[:1]:
            signal.raise_signal(captured)


def _say(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say on one line what the loop met and nobody handled: too few descriptors for another client, for instance."""
    if os.environ.get("ORRERY_DEBUG"):
        return loop.default_exception_handler(context)
    error = context.get("exception")
    print(f"orrery: the server goes on: {context['message']}{f' ({error})' if error else ''}", file=sys.stderr)
