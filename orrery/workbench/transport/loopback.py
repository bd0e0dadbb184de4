"""The server on the loopback address, and the signals that end it as they end every other command."""

import asyncio
import errno
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from groundwork.errors import ConfigError
from orrery.terminal.signals import ENDED_BY

_LOOPBACK = "127.0.0.1"
_GRACE_S = 1
"""Time that open requests and streams have to end when the server does."""


def listening_socket(port: int) -> socket.socket:
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
    """A server that every signal of a command ends, whatever it does, with all that was started."""

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


_HEADERS_S = 10.0
"""Time in which a connection must bring all headers of its first request, or of the next."""
_TAKING_S = 60.0
"""Time in which a client must take some of what it is sent."""
_MOST_WAITING = 256
"""Connections without a request; of more the oldest is dropped, so that they never take all descriptors."""
ACCEPTED_AT_ONCE = 32
"""Connections accepted in one turn of the loop: far fewer than may wait, so that a request is read before it is old."""


class BoundedConnection(H11Protocol):
    """A connection that is dropped where its client sends half of the headers, or takes nothing of an answer."""

    _deadline: asyncio.TimerHandle | None = None
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for headers."""
        super().connection_made(transport)
        self._await_headers()
        waiting = {
            each: each._deadline.when()
            for each in cast("set[BoundedConnection]", self.connections)
            if each._deadline is not None
        }
        if len(waiting) > _MOST_WAITING:
            min(waiting, key=waiting.__getitem__)._drop()

    def handle_events(self) -> None:
        """Begin a request, if its headers are complete."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next request, and for the client to take the answer."""
        self._await_headers()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Begin to wait for a client that takes less than it is sent."""
        super().pause_writing()
        self._await_taking()

    def resume_writing(self) -> None:
        """Go on with a client that takes what it is sent."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all clocks."""
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        self._stop_waiting()
        # an answer that is still under way has the time of an answer
        left = self.transport.get_write_buffer_size()
        self._deadline = self.loop.call_later(
            _TAKING_S if left else _HEADERS_S, self._drop_unless_taken, left, self._await_headers
        )

    def _await_taking(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._patience = self.loop.call_later(_TAKING_S, self._drop_unless_taken, left, self._await_taking)

    def _drop_unless_taken(self, left: int, wait: Callable[[], None]) -> None:
        """Wait anew where the client has taken some of what was left."""
        if self.transport.get_write_buffer_size() < left:
            wait()
        else:
            self._drop()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _drop(self) -> None:
        self._stop_waiting()
        self.transport.abort()
