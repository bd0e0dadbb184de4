"""A lab in the machine itself, for any program: ``orrery lab up``, ``status`` and ``down``.

What is up is written down before it is made, so that ``down`` also clears what a killed ``up`` left.
"""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import msgspec

from executor.lab.namespaces import LabHosts, make_network, members, processes, remove_network
from executor.lab.wiring import wiring_of
from hwprofiles import ConfigError
from hwprofiles.devices import DeviceGraph

__all__ = ["LabStatus", "down", "status", "up"]

STATE = Path("/run/orrery-lab.json")
"""Beside the namespaces, and like them gone when the machine starts anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabStatus:
    """A lab in the machine."""

    cluster: str
    """As ``load_cluster`` was asked for it."""
    hosts: LabHosts
    complete: bool
    """Whether every host and switch is there."""
    processes: tuple[int, ...]
    """Number of processes in each host."""


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cluster: str
    prefix: str
    host_count: int
    vertex_count: int


def up(cluster: DeviceGraph, *, state_path: Path = STATE) -> LabStatus:
    """Make a lab in the machine, as root.

    Raises:
        ConfigError: A lab is up, the lab cannot make the cluster, the right is lacking, or a tool refused; nothing is
            left then.
    """
    wiring = wiring_of(cluster)
    if os.geteuid() != 0:
        raise ConfigError("a lab in the machine itself needs root; running a command in a lab of its own does not")
    state = _State(
        cluster=cluster.spec,
        prefix=f"orrery-{secrets.token_hex(3)}-",
        host_count=wiring.host_count,
        vertex_count=wiring.vertex_count,
    )
    _claim(state_path, state)
    try:
        make_network(wiring, state.prefix)
    except BaseException:
        down(state_path=state_path)
        raise
    return _status(state)


def down(*, state_path: Path = STATE) -> bool:
    """Kill what runs in the lab and remove it.

    Returns:
        Whether there was one.

    Raises:
        ConfigError: The file that says what is up is damaged, or a tool refused.
    """
    state = _read(state_path)
    if state is not None:
        remove_network(state.prefix)
        state_path.unlink(missing_ok=True)
    return state is not None


def status(*, state_path: Path = STATE) -> LabStatus | None:
    """The lab that is up in the machine, if one is.

    Raises:
        ConfigError: The file that says what is up is damaged, or a tool refused.
    """
    state = _read(state_path)
    return None if state is None else _status(state)


def _status(state: _State) -> LabStatus:
    hosts = LabHosts(prefix=state.prefix, count=state.host_count)
    found = set(members(state.prefix))
    return LabStatus(
        cluster=state.cluster,
        hosts=hosts,
        complete=len(found) == state.vertex_count,
        processes=tuple(len(processes(name)) if name in found else 0 for name in hosts.namespaces),
    )


def _claim(path: Path, state: _State) -> None:
    """Write the state unless one is there; of two that try at once, one gets it."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(msgspec.json.encode(state))
        os.link(beside, path)
    except FileExistsError:
        raise ConfigError(f"a lab is up already, says {path}; take it down first") from None
    except OSError as error:
        raise ConfigError(f"the lab cannot be written down in {path}: {error.strerror}") from None
    finally:
        beside.unlink(missing_ok=True)


def _read(path: Path) -> _State | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_State)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}, which says what lab is up, cannot be read: {error}") from None
