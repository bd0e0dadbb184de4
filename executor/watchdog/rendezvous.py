"""Rendezvous of the watchdogs of a run: the key-value store at which its ranks meet, over connections of their own."""

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta

import msgspec
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]  # its stubs hide them

from executor.processes.rank_environment import RankEnvironment
from executor.processes.rank_store import attempt, run_key
from executor.processes.signed_store import SignatureError, SignedStore
from executor.watchdog.heartbeats import Heartbeat, RunEnd

STORE_LOST = RuntimeError
"""Error that every call raises when the store is gone; ``torch.distributed.DistError`` is one."""

_TIMEOUT = timedelta(seconds=10)
"""Longest time of one call to the store."""
_CONNECT = timedelta(seconds=2)
"""Longest time of one attempt to connect: a store may go between its first reply and that, with a rank that refuses."""
_RECEIVED_S, _POLL_S = 2.0, 0.05
"""Longest wait for others to receive the end of the run; time between two checks of that."""
_END, _RECEIVED = "end", "received"
"""Keys of the end of the run, and of the number of watchdogs that have received it."""


class Rendezvous:
    """Exchange of the heartbeats of all ranks and of the end of the run, over a store in the process of rank 0."""

    def __init__(self, where: RankEnvironment) -> None:
        """Connect to the store; values in it are signed if the ranks have a secret.

        Args:
            where: Rank of this process, and the address of the store.
        """
        store = TCPStore(where.address, where.port, is_master=False, wait_for_workers=False, timeout=_CONNECT)
        store.set_timeout(_TIMEOUT)
        self._store: Store = PrefixStore(f"orrery/watchdogs/{attempt()}", store)
        if where.secret:
            self._store = SignedStore(self._store, run_key(where, "watchdogs"), _purpose)
        self._rank, self._ranks = where.rank, where.ranks
        self._known: set[int] = set()

    @classmethod
    def reached(cls, where: RankEnvironment, wait_s: float) -> "Rendezvous | None":
        """Connect to the store; return None if it does not listen within ``wait_s`` seconds."""
        with suppress(OSError, STORE_LOST):
            # torch would warn of every attempt that fails
            socket.create_connection((where.address, where.port), wait_s).close()
            return cls(where)
        return None

    def publish(self, heartbeat: Heartbeat) -> None:
        """Publish the heartbeat of the own rank, in the place of the one before."""
        row = msgspec.msgpack.encode(heartbeat)
        self._store.set(f"rank-{self._rank}", row)  # type: ignore[arg-type]  # bytes as well

    def heartbeats(self, ranks: range) -> Mapping[int, Heartbeat]:
        """Return the last heartbeats of some ranks; ranks that have published none are left out."""
        self._known |= {rank for rank in ranks if rank not in self._known and self._store.check([f"rank-{rank}"])}
        known = [rank for rank in ranks if rank in self._known]
        rows = self._store.multi_get([f"rank-{rank}" for rank in known]) if known else []
        with _readable():
            return {rank: msgspec.msgpack.decode(row, type=Heartbeat) for rank, row in zip(known, rows, strict=True)}

    def end(self) -> RunEnd | None:
        """Return how the run ends, None while it goes on."""
        if not self._store.check([_END]):
            return None
        with _readable():
            return msgspec.json.decode(self._store.get(_END), type=RunEnd)

    def publish_end(self, end: RunEnd) -> RunEnd:
        """Publish how the run ends; return the end that another watchdog has published before, if one has."""
        text = self._store.compare_set(_END, "", msgspec.json.encode(end).decode())
        with _readable():
            return msgspec.json.decode(text, type=RunEnd)

    def leave(self, end: RunEnd) -> None:
        """Wait until all have received the end of the run, 2 s at most: the store may go with the first that leaves."""
        received, deadline_s = self._store.add(_RECEIVED, 1), time.monotonic() + _RECEIVED_S
        while received < end.receivers and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
            received = self._store.add(_RECEIVED, 0)


@contextmanager
def _readable() -> Iterator[None]:
    """Tell of values that cannot be read: without a secret, those that another rank has signed are such."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise SignatureError(
            "secret_file must be the same for all ranks: one has written what this one, without a secret, cannot read"
        ) from None


def _purpose(key: str) -> str:
    """Return what users call the value of a key."""
    if key in (_END, _RECEIVED):
        return "the end of the run"
    return f"the heartbeat of {key.replace('-', ' ')}"
