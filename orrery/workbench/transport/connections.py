"""Connections that do not wait for ever: any process of this machine may connect, and needs no token for that."""

import asyncio
from collections.abc import Callable
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol

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
    """Runs while the connection waits for headers."""
    _patience: asyncio.TimerHandle | None = None
    """Runs while the client takes nothing."""

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
