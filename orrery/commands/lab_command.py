"""``orrery lab``: a cluster of network namespaces on this machine, kept up until it is taken down."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from orrery.terminal import Json, print_json, print_pairs, print_table

if TYPE_CHECKING:
    from executor.lab import LabStatus

__all__ = ["lab"]

lab = typer.Typer(help="Make a cluster of hosts on this machine (Linux, root): network namespaces with shaped links.")


@lab.command("up")
def lab_up(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Such as lab-2x2:nodes=8, or a cluster file.")],
    *,
    json: Json = False,
) -> None:
    """Make the hosts, switches and links of a cluster."""
    from executor.lab import up
    from hwprofiles.catalogue import load_cluster

    _show(up(load_cluster(cluster)), json=json)


@lab.command("down")
def lab_down(*, json: Json = False) -> None:
    """Take down what is up, with the processes in it."""
    from executor.lab import down

    removed = down()
    print_json({"removed": removed}) if json else print("removed" if removed else "no lab is up")


@lab.command("status")
def lab_status(*, json: Json = False) -> None:
    """Say what is up."""
    from executor.lab import status

    found = status()
    if found is not None:
        return _show(found, json=json)
    print_json(None) if json else print("no lab is up")


def _show(found: "LabStatus", *, json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"host": host, "namespace": name, "address": address, "processes": count}
        for host, (name, address, count) in enumerate(
            zip(found.hosts.namespaces, found.hosts.addresses, found.processes, strict=True)
        )
    ]
    if json:
        return print_json({"cluster": found.cluster, "complete": found.complete, "hosts": rows})
    print_table(rows)
    print_pairs({"cluster": found.cluster, "complete": "yes" if found.complete else "no: take it down"})
    print("start a program in a host with: ip netns exec NAMESPACE COMMAND")
