"""Heartbeats that supervisors exchange at the store where the ranks of a run meet, and the end that they agree on."""

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

import msgspec

from executor.rendezvous.rank_environment import RankEnvironment
from executor.supervision.diagnosis import Ending
from executor.supervision.status_board import RankRow, RankState

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]  # its stubs hide it

_Decoded = TypeVar("_Decoded")
_CALL, _CONNECT = timedelta(seconds=10), timedelta(seconds=2)
"""Longest time of a call to the store, and of an attempt to connect: it may go between its first reply and that."""
_RECEIVED_S, _POLL_S = 2.0, 0.05
"""Longest wait for others to receive the end of the run; time between two checks of that."""
_END, _RECEIVED = "end", "received"
"""Keys of the end of the run, and of the number of supervisors that have received it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """State of one rank, as its supervisor sees it."""

    row: bytes
    """Row of the status board, as ``RankRow.packed`` returns it."""
    beat: int = 0
    """Count that grows with every heartbeat of the rank."""
    stopped: bool = False
    """True where a signal has stopped the rank's process."""
    looks: int = 0
    """How often the supervisor has looked at its rank: between two looks a busy machine may let much time pass."""
    ending: Ending | None = None
    """End of the rank's process; None while it runs."""
    requested: bool = False
    """True where the supervisor has been requested to end."""
    pid: int = 0
    """Process of the supervisor."""
    launcher: str = ""
    """Process that started the supervisor, and its machine, on which the ids are valid."""

    @property
    def ended_well(self) -> bool:
        """True where the rank has ended with nothing left to do."""
        return self.ending == Ending() and RankRow.unpacked(self.row).state == RankState.FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """Failure by which a run ends, on which all supervisors agree."""

    rank: int
    """Rank that failed first."""
    reason: str
    row: bytes
    """Its row of the status board."""
    receivers: int
    silent: Heartbeat | None = None
    """Last heartbeat of the rank where its supervisor is silent as well."""


class HeartbeatExchange(Thread):
    """Thread that exchanges heartbeats until the run ends: a store that does not reply keeps nothing else waiting."""

    def __init__(self, where: RankEnvironment, own: Heartbeat, *, beat_s: float, connect_s: float) -> None:
        """Exchange nothing yet."""
        super().__init__(name="heartbeats", daemon=True)
        self._where, self._beat_s, self._connect_s = where, beat_s, connect_s
        self.own = own
        """Heartbeat to publish."""
        self.proposed: RunEnd | None = None
        """End to agree on."""
        self.changed = Event()
        """Set where one of these must be published at once."""
        self.published: Heartbeat | None = None
        """Own heartbeat that was published last."""
        self.heartbeats: Mapping[int, Heartbeat] = {}
        """Last heartbeats that have been published: of all ranks on rank 0, elsewhere of that alone."""
        self.end: RunEnd | None = None
        """End that the supervisors have agreed on."""
        self.lost = ""
        """Reason for which nothing is exchanged any more."""
        self.refused = False
        """True where that is a secret, which also explains why a rank has lost the others."""
        self.replied_s = time.monotonic()
        """Time of the store's last reply."""

    @cached_property
    def prints(self) -> bool:
        """True where no other supervisor of this machine prints how the run ends.

        The name of a socket serves as a lock on the machine: the store may be gone, so it cannot be one.
        """
        self._print_lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with suppress(OSError):
            self._print_lock.bind(f"\0orrery-supervisor {self.own.launcher} {self._where.port}")
            return True
        return False

    def run(self) -> None:
        """Exchange heartbeats until the run ends."""
        from executor.rendezvous.signed_store import SignatureError

        try:
            if store := self._connected():
                self._exchange(store)
            else:
                self.lost = f"has found no store for {self._connect_s:.0f} s"
        except RuntimeError:  # torch.distributed.DistError is one
            self.lost = "has lost the store, so the run has ended elsewhere"
        except SignatureError as error:
            self.lost, self.refused = str(error), True

    def _connected(self) -> "Store | None":
        """Return the store, None if it does not listen in time; values in it are signed if the ranks have a secret."""
        # torch takes seconds to be imported; the rank starts meanwhile
        from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # its stubs hide them

        from executor.rendezvous.rank_store import attempt, run_key
        from executor.rendezvous.signed_store import SignedStore

        where, until_s = self._where, time.monotonic() + self._connect_s
        while (now_s := time.monotonic()) < until_s:
            self.replied_s = now_s
            with suppress(OSError, RuntimeError):
                # torch would warn of every attempt that fails
                socket.create_connection((where.address, where.port), self._beat_s).close()
                store = TCPStore(where.address, where.port, is_master=False, wait_for_workers=False, timeout=_CONNECT)
                store.set_timeout(_CALL)
                own_part = PrefixStore(f"orrery/supervisors/{attempt()}", store)
                return SignedStore(own_part, run_key(where, "supervisors"), _purpose) if where.secret else own_part
            time.sleep(self._beat_s)
        return None

    def _exchange(self, store: "Store") -> None:
        known, beat = list[int](), 0
        watched = range(self._where.ranks if self._where.rank == 0 else 1)
        while True:
            self.changed.clear()
            own, beat = self.own, beat + 1
            store.set(f"rank-{self._where.rank}", msgspec.json.encode(replace(own, beat=beat)).decode())
            self.published = own
            if self.proposed:
                agreed = store.compare_set(_END, "", msgspec.json.encode(self.proposed).decode())
            else:
                agreed = store.get(_END) if store.check([_END]) else b""
            if agreed:
                end = _decoded(agreed, RunEnd)
                # before any of this machine, which all wait for one another, has ended
                _ = self.own.requested or self.prints
                self.end = end
                # The store may go with the first that leaves: wait until all have received the end of the run, or 2 s.
                received, deadline_s = store.add(_RECEIVED, 1), time.monotonic() + _RECEIVED_S
                while received < end.receivers and time.monotonic() < deadline_s:
                    time.sleep(_POLL_S)
                    received = store.add(_RECEIVED, 0)
            known += [rank for rank in watched if rank not in known and store.check([f"rank-{rank}"])]
            texts = store.multi_get([f"rank-{rank}" for rank in known]) if known else []
            self.heartbeats = {rank: _decoded(text, Heartbeat) for rank, text in zip(known, texts, strict=True)}
            self.replied_s = time.monotonic()
            self.changed.wait(self._beat_s)


def _decoded(text: bytes, kind: type[_Decoded]) -> _Decoded:
    """Return what another supervisor has written."""
    from executor.rendezvous.signed_store import SignatureError

    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):  # it was signed, and this one has no secret
        raise SignatureError(
            "secret_file must be the same for all ranks: one has written what this one, without a secret, cannot read"
        ) from None


def _purpose(key: str) -> str:
    """Return what users call the value of a key."""
    return "the end of the run" if key in (_END, _RECEIVED) else f"the heartbeat of {key.replace('-', ' ')}"
