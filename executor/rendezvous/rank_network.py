"""Network of the ranks: which interface they use, and what must be true of it where they are on several machines."""

import ipaddress
import os
import socket
from collections.abc import Mapping

import psutil

from executor.rendezvous.rank_environment import RankEnvironment, local_ranks, under_torchrun
from groundwork.errors import ConfigError


def several_machines(where: RankEnvironment, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether ranks may be on other machines: not all are of this one, and they do not meet at its loopback."""
    if _is_loopback(where.address):
        return False
    return "LOCAL_WORLD_SIZE" not in environment or local_ranks(where, environment) < where.ranks


def check_network(where: RankEnvironment) -> None:
    """Refuse a network that cannot be used, and ranks on several machines that nothing tells from strangers.

    Raises:
        ConfigError: There is no secret, and the user has not said that none is needed; there is no such interface; or
            the ranks do not meet in its network.
    """
    if where.secret and where.no_secret:
        raise ConfigError("no_secret must be left out with a secret file, got both")
    if where.interface:
        _addresses(where.interface)
    if not several_machines(where):
        return
    if not where.secret and not where.no_secret:
        raise ConfigError(
            "secret_file must name a file that every machine of the run has (--secret-file or ORRERY_SECRET_FILE);"
            " --no-secret runs without one, in a network that you trust; got none"
        )
    # torchrun's store listens everywhere, and may be in another network than the ranks
    if where.interface and not under_torchrun() and where.interface != (routed := _routed_interface(where)):
        raise ConfigError(
            f"interface must be the one towards MASTER_ADDR {where.address!r}, here {routed!r}; got {where.interface!r}"
        )


def use_network(where: RankEnvironment) -> None:
    """Make the back ends listen at one interface only: that of the ranks' network, or loopback on one machine.

    Raises:
        ConfigError: No interface leads to the address where the ranks meet.
    """
    interface = where.interface
    if not interface:
        loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
        interface = _routed_interface(where) if several_machines(where) else loopback
    # NCCL takes a name without the sign for the start of one
    for variable, value in (("GLOO_SOCKET_IFNAME", interface), ("NCCL_SOCKET_IFNAME", f"={interface}")):
        if where.interface:
            os.environ[variable] = value
        else:
            os.environ.setdefault(variable, value)


def store_address(where: RankEnvironment) -> tuple[socket.AddressFamily, str]:
    """Return the family and number of the address where the ranks meet: rank 0 serves the store there only.

    Raises:
        ConfigError: The address is a name that is not known.
    """
    try:
        family, *_, address = socket.getaddrinfo(where.address, where.port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(f"MASTER_ADDR must be known here, got {where.address!r}: {error.strerror}") from None
    return family, str(address[0])


def _is_loopback(address: str) -> bool:
    """Return whether only this machine reaches an address; names are not looked up, for machines may differ in them."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _routed_interface(where: RankEnvironment) -> str:
    """Return the interface by which this machine reaches the address where the ranks meet."""
    family, address = store_address(where)
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:  # sends nothing
            probe.connect((address, where.port))
            own = probe.getsockname()[0]
    except OSError as error:
        raise ConfigError(
            f"MASTER_ADDR must be in a network of this machine, got {where.address!r}: {error.strerror}"
        ) from None
    if _is_loopback(own):
        raise ConfigError(
            f"MASTER_ADDR must be an address that other machines reach, got {where.address!r}, here {address}"
        )
    return next(name for name in psutil.net_if_addrs() if own in _addresses(name))


def _addresses(interface: str) -> list[str]:
    interfaces = psutil.net_if_addrs()
    if interface not in interfaces:
        raise ConfigError(
            f"interface must be one of this machine's: {', '.join(sorted(interfaces))}; got {interface!r}"
        )
    internet = (socket.AF_INET, socket.AF_INET6)
    return [row.address.partition("%")[0] for row in interfaces[interface] if row.family in internet]
