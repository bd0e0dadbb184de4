"""Where the guards of a run meet: the key-value store at which its ranks join, over a connection of their own."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

import msgspec
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # its stubs hide them

from executor.processes import RankEnvironment
from executor.watchdog.heartbeats import Heartbeat, Judgement

__all__ = ["LOST", "Rendezvous"]

LOST = RuntimeError
"""What every call raises when the store is gone; ``torch.distributed.DistError`` is one."""

_ANSWER = timedelta(seconds=10)
_HEARD_S, _POLL_S = 2.0, 0.05
"""How long one waits for others to hear of the end; between two looks."""
_VERDICT, _HEARD = "verdict", "heard"


class Rendezvous:
    """The sightings of all ranks, and at last one judgement; a store that works in another process answers.

    Args:
        where: Which rank.
        attempt: Which start of the ranks by torchrun: what was said at earlier ones does not count.
    """

    def __init__(self, where: RankEnvironment, attempt: str) -> None:
        store = TCPStore(where.address, where.port, is_master=False, wait_for_workers=False, timeout=_ANSWER)
        self._store = PrefixStore(f"orrery/guards/{attempt}", store)
        self._rank, self._ranks = where.rank, where.ranks
        self._known: set[int] = set()

    @classmethod
    def reached(cls, where: RankEnvironment, wait_s: float) -> "Rendezvous | None":
        """Join the meeting; None if its store does not listen within so many seconds."""
        with suppress(OSError, LOST):
            # torch would warn of every vain attempt
            socket.create_connection((where.address, where.port), wait_s).close()
            return cls(where, os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        return None

    def tell(self, seen: Heartbeat) -> None:
        """Publish the sighting of the own rank, in the place of the one before."""
        self._store.set(f"rank-{self._rank}", msgspec.msgpack.encode(seen))  # type: ignore[arg-type]  # bytes as well

    def sightings(self, ranks: range) -> Mapping[int, Heartbeat]:
        """The last sightings of some ranks, those that there are."""
        self._known |= {rank for rank in ranks if rank not in self._known and self._store.check([f"rank-{rank}"])}
        known = [rank for rank in ranks if rank in self._known]
        rows = self._store.multi_get([f"rank-{rank}" for rank in known]) if known else []
        return {rank: msgspec.msgpack.decode(row, type=Heartbeat) for rank, row in zip(known, rows, strict=True)}

    def judgement(self) -> Judgement | None:
        """How the run ends, None while it goes on."""
        if not self._store.check([_VERDICT]):
            return None
        return msgspec.json.decode(self._store.get(_VERDICT), type=Judgement)

    def decide(self, found: Judgement) -> Judgement:
        """Publish how the run ends; returns what another has published before, if one has."""
        text = self._store.compare_set(_VERDICT, "", msgspec.json.encode(found).decode())
        return msgspec.json.decode(text, type=Judgement)

    def part(self, found: Judgement) -> None:
        """Wait until all have heard how the run ends, 2 s at most: the store may go with the first that leaves."""
        heard, deadline_s = self._store.add(_HEARD, 1), time.monotonic() + _HEARD_S
        while heard < found.listeners and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
            heard = self._store.add(_HEARD, 0)
