"""Store at which the ranks of a run meet: who serves it, at which address, and how ranks know each other there."""

import contextlib
import os
import secrets
import socket
from datetime import timedelta

from torch.distributed import (  # type: ignore[attr-defined]  # its stubs hide them
    DistError,
    PrefixStore,
    Store,
    TCPStore,
)

from executor.rendezvous.rank_environment import RankEnvironment, under_torchrun
from executor.rendezvous.rank_network import store_address
from executor.rendezvous.signed_store import SignatureError, SignedStore, derived_key

_NONCE_BYTES = 16
_REFUSAL_READ = timedelta(seconds=3)
"""Longest wait of a rank that refuses another one, for all to see why: the store may go with the first that ends."""


def attempt() -> str:
    """Return the count of torchrun's starts of the ranks: values of earlier starts are not read."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def run_key(where: RankEnvironment, purpose: str) -> bytes:
    """Return the key for one purpose in this start of this run."""
    run = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return derived_key(where.secret, purpose.encode(), run.encode(), attempt().encode())


def opened_store(where: RankEnvironment, timeout: timedelta) -> Store:
    """Return the store of the ranks, with signatures where they have a secret.

    Args:
        where: Rank of this process, and the address of the store, which rank 0 serves there unless torchrun does.
        timeout: Longest wait of a call.

    Raises:
        SignatureError: Another rank has another secret.
    """
    serves, listening = where.rank == 0 and not under_torchrun(), None
    if serves:  # torch's own socket would listen at every interface
        family, address = store_address(where)
        listening = socket.create_server((address, where.port), family=family).detach()
    store = TCPStore(
        where.address, where.port, is_master=serves, timeout=timeout, wait_for_workers=False, master_listen_fd=listening
    )
    ranks = PrefixStore(f"orrery/ranks/{attempt()}", store)
    if not where.secret:
        return ranks
    key = _agreed_key(where, PrefixStore(f"orrery/greetings/{attempt()}", store))
    return SignedStore(ranks, key, lambda _: "a connection of the ranks")


def _agreed_key(where: RankEnvironment, store: Store) -> bytes:
    """Return a key that the ranks of this run alone have, from the secret and a new number of each rank.

    What was signed in another run, with the same secret, has another key.
    """
    greetings = SignedStore(store, run_key(where, "greetings"), lambda key: f"the greeting of {key.replace('-', ' ')}")
    own, names = secrets.token_bytes(_NONCE_BYTES), [f"rank-{rank}" for rank in range(where.ranks)]
    greetings.set(names[where.rank], own)
    greetings.wait(names)
    try:
        numbers = greetings.multi_get(names)
    except SignatureError:
        store.set(f"read-{where.rank}", "")
        with contextlib.suppress(DistError):
            store.wait([f"read-{rank}" for rank in range(where.ranks)], _REFUSAL_READ)
        raise
    store.set(f"read-{where.rank}", "")
    # its own number, not the one in the store: an older greeting of this rank gives no key of an older run
    numbers[where.rank] = own
    return derived_key(where.secret, b"ranks", *numbers)
