"""Commands for a lab in the machine itself, for any program: ``orrery lab up``, ``status`` and ``down``.

The state of the lab is written before the lab is made, so that ``down`` also removes what a killed ``up`` left.
"""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import msgspec

from executor.lab.namespaces import LabHosts, make_network, members, processes, remove_network
from executor.lab.wiring import wiring_of
from groundwork.errors import ConfigError
from hwprofiles.devices.device_graph import DeviceGraph

STATE = Path("/run/orrery-lab.json")
"""File with the state of the lab; it lies beside the namespaces, and like them is gone after a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabStatus:
    """Lab in the machine: its cluster, and the state of its hosts."""

    cluster: str
    """Name or file of the cluster, as ``load_cluster`` takes it."""
    hosts: LabHosts
    complete: bool
    processes: tuple[int, ...]
    """Number of processes in each host."""


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of the state file."""

    cluster: str
    prefix: str
    host_count: int
    vertex_count: int


def up(cluster: DeviceGraph, *, state_path: Path = STATE) -> LabStatus:
    """Make a lab in the machine, as root.

    Raises:
        ConfigError: A lab is up, the cluster cannot be made, the user is not root, or a tool failed; nothing is left
            then.
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
    """Kill the processes in the lab, and remove it.

    Returns:
        True where there was a lab.

    Raises:
        ConfigError: The state file is damaged, or a tool failed.
    """
    state = _read(state_path)
    if state is not None:
        remove_network(state.prefix)
        state_path.unlink(missing_ok=True)
    return state is not None


def status(*, state_path: Path = STATE) -> LabStatus | None:
    """Return the lab that is up in the machine, None if there is none.

    Raises:
        ConfigError: The state file is damaged, or a tool failed.
    """
    state = _read(state_path)
    return None if state is None else _status(state)


def _status(state: _State) -> LabStatus:
    hosts = LabHosts(prefix=state.prefix, count=state.host_count)
    existing = set(members(state.prefix))
    return LabStatus(
        cluster=state.cluster,
        hosts=hosts,
        complete=len(existing) == state.vertex_count,
        processes=tuple(len(processes(name)) if name in existing else 0 for name in hosts.namespaces),
    )


def _claim(path: Path, state: _State) -> None:
    """Write the state file unless there is one; of two processes that try at once, one succeeds."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(msgspec.json.encode(state))
        os.link(partial, path)
    except FileExistsError:
        raise ConfigError(
            f"a lab is up already, by the state in {path}; take it down with orrery lab down first"
        ) from None
    except OSError as error:
        raise ConfigError(f"the state of the lab cannot be written to {path}: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)


def _read(path: Path) -> _State | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_State)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"the state of the lab in {path} cannot be read: {error}") from None
