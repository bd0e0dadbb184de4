"""Rank of a process, and the address at which the ranks meet, in the environment variables that torchrun uses."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from hwprofiles import ConfigError

__all__ = [
    "LOOPBACK",
    "RankEnvironment",
    "held_port",
    "local_environment",
    "local_ranks",
    "loopback_interface",
    "rank_environment",
]

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnvironment:
    """Rank of one process, and the address at which the ranks meet."""

    rank: int
    ranks: int
    local_rank: int
    """Number among the processes of the same machine, which is also the number of its GPU."""
    address: str
    """Address of the host of rank 0, at which the ranks meet."""
    port: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.ranks:
            raise ConfigError(f"RANK must be in 0 to WORLD_SIZE - 1 = {self.ranks - 1}, got {self.rank}")
        if not 0 <= self.local_rank <= self.rank:
            raise ConfigError(f"LOCAL_RANK must be in 0 to RANK = {self.rank}, got {self.local_rank}")
        if not 0 < self.port < 2**16:
            raise ConfigError(f"MASTER_PORT must be in 1 to 65535, got {self.port}")


def rank_environment(environment: Mapping[str, str] = os.environ) -> RankEnvironment:
    """Return the rank of this process, as ``torchrun`` or the supervisor wrote it into the environment.

    Raises:
        ConfigError: A variable is missing, is no whole number or is out of range; the message names it.
    """
    return RankEnvironment(
        rank=_integer(environment, "RANK"),
        ranks=_integer(environment, "WORLD_SIZE"),
        local_rank=_integer(environment, "LOCAL_RANK"),
        address=_text(environment, "MASTER_ADDR"),
        port=_integer(environment, "MASTER_PORT"),
    )


def local_environment(
    rank: int, ranks: int, port: int, threads: int, *, address: str = LOOPBACK, local_rank: int | None = None
) -> dict[str, str]:
    """Return the environment variables that make a process of this machine a rank.

    Args:
        rank: Its rank.
        ranks: Number of ranks.
        port: Port at ``address`` at which the ranks meet.
        threads: Threads that each rank computes with.
        address: Address of the host of rank 0.
        local_rank: Number among the processes of its machine; ``rank`` if None.
    """
    values = {
        "RANK": rank,
        "WORLD_SIZE": ranks,
        "LOCAL_RANK": rank if local_rank is None else local_rank,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": threads,
    }
    return {name: str(value) for name, value in values.items()}


def local_ranks(where: RankEnvironment, environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of ranks of this machine, as torchrun says it; without torchrun all ranks are here."""
    return _integer(environment, "LOCAL_WORLD_SIZE") if "LOCAL_WORLD_SIZE" in environment else where.ranks


def loopback_interface() -> str:
    """Return the name of the interface that only this machine reaches, such as ``lo``."""
    return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))


@contextmanager
def held_port() -> Iterator[int]:
    """Yield a TCP port of the loopback interface that the system gives to no other process meanwhile.

    The port is bound but not listened at.  A rank can still listen at it: ``TCPStore`` sets ``SO_REUSEADDR``, as
    servers do, and such sockets share an address with one that does not listen.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((LOOPBACK, 0))
        yield holder.getsockname()[1]


def _text(environment: Mapping[str, str], name: str) -> str:
    if not (value := environment.get(name, "")):
        raise ConfigError(f"{name} must be set in the environment (torchrun sets it), got none")
    return value


def _integer(environment: Mapping[str, str], name: str) -> int:
    value = _text(environment, name)
    try:
        return int(value)
    except ValueError:
        raise ConfigError(f"{name} must be a whole number, got {value!r}") from None
