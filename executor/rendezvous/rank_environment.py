"""Rank of a process, and the address at which the ranks meet, in the environment variables that torchrun uses."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from groundwork.errors import ConfigError
from groundwork.input_files import input_bytes

LOOPBACK = "127.0.0.1"
INTERFACE_VARIABLE, SECRET_VARIABLE = "ORRERY_INTERFACE", "ORRERY_SECRET_FILE"
NO_SECRET_VARIABLE = "ORRERY_NO_SECRET"
"""Variables beside torchrun's: the network interface, the file with the secret of the ranks, and 1 to need none."""
_LEAST_SECRET_BYTES, _SECRET_MIB = 16, 1
_ANYBODY_ELSE = 0o077
"""Rights of a file's group and of all others."""


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
    interface: str = ""
    """Network interface that the user has named; empty if none."""
    secret: bytes = field(default=b"", repr=False)
    """Secret that all ranks know; empty if there is none."""
    no_secret: bool = False

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
        ConfigError: A variable is missing, is no whole number or is out of range; the message names it.  Or the file
            with the secret cannot be used.
    """
    secret_file = environment.get(SECRET_VARIABLE, "")
    address, ranks = _text(environment, "MASTER_ADDR"), _integer(environment, "WORLD_SIZE")
    here = environment.get("LOCAL_WORLD_SIZE", "1")
    if here == environment["WORLD_SIZE"] and not under_torchrun(environment):
        address = LOOPBACK  # all ranks are here: no other machine needs to reach the store that rank 0 will serve
    return RankEnvironment(
        rank=_integer(environment, "RANK"),
        ranks=ranks,
        local_rank=_integer(environment, "LOCAL_RANK"),
        address=address,
        port=_integer(environment, "MASTER_PORT"),
        interface=environment.get(INTERFACE_VARIABLE, ""),
        secret=_secret(Path(secret_file)) if secret_file else b"",
        no_secret=environment.get(NO_SECRET_VARIABLE, "") == "1",
    )


def local_environment(rank: int, ranks: int, port: int, threads: int) -> dict[str, str]:
    """Return the environment variables that make a process of this machine a rank."""
    values = {
        "RANK": rank,
        "WORLD_SIZE": ranks,
        "LOCAL_RANK": rank,
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": threads,
    }
    return {name: str(value) for name, value in values.items()}


def under_torchrun(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether torchrun has started this process; it then also has the store at the ranks' address."""
    return environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def local_ranks(where: RankEnvironment, environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of ranks of this machine, as torchrun says it; without torchrun all ranks are here."""
    return _integer(environment, "LOCAL_WORLD_SIZE") if "LOCAL_WORLD_SIZE" in environment else where.ranks


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


def _secret(path: Path) -> bytes:
    """Return the secret that a file holds, without the end of its line, which editors add."""
    secret = input_bytes(path, "secret file", limit_mib=_SECRET_MIB).rstrip(b"\r\n")
    try:
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        raise ConfigError(f"secret file {path} cannot be read: {error.strerror}") from None
    if mode & _ANYBODY_ELSE:
        raise ConfigError(f"secret file {path} must be for its owner alone (chmod 600), got mode {mode:03o}")
    if len(secret) < _LEAST_SECRET_BYTES:
        raise ConfigError(f"secret file {path} must hold at least {_LEAST_SECRET_BYTES} bytes, got {len(secret)}")
    return secret


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
