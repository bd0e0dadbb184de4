"""``orrery lab``: a cluster of network namespaces on this machine, kept up until it is taken down."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from orrery.terminal.options import JsonOption
from orrery.terminal.output import print_json
from orrery.terminal.views import print_pairs, print_table

if TYPE_CHECKING:
    from executor.lab.commands import LabStatus


lab_app = typer.Typer(
    help="Build a cluster of hosts on this machine (Linux, root): network namespaces with shaped links."
)


@lab_app.command("up")
def lab_up(
    cluster: Annotated[
        str, typer.Argument(metavar="CLUSTER", help="Cluster, such as lab-2x2:nodes=8, or a cluster file.")
    ],
    *,
    json: JsonOption = False,
) -> None:
    """Build the hosts, switches and links of a cluster."""
    from executor.lab.commands import up
    from hwprofiles.catalogue.cluster_catalogue import load_cluster

    _show(up(load_cluster(cluster)), json=json)


@lab_app.command("down")
def lab_down(*, json: JsonOption = False) -> None:
    """Take the lab down, with the processes in it."""
    from executor.lab.commands import down

    removed = down()
    print_json({"removed": removed}) if json else print("removed" if removed else "no lab is up")


@lab_app.command("status")
def lab_status(*, json: JsonOption = False) -> None:
    """Show the lab that is up, if any."""
    from executor.lab.commands import status

    state = status()
    if state is not None:
        return _show(state, json=json)
    print_json(None) if json else print("no lab is up")


def _show(state: "LabStatus", *, json: bool) -> None:
    """Print the hosts of a lab, and whether all of it is up."""
    rows: list[dict[str, Any]] = [
        {"host": host, "namespace": name, "address": address, "processes": count}
        for host, (name, address, count) in enumerate(
            zip(state.hosts.namespaces, state.hosts.addresses, state.processes, strict=True)
        )
    ]
    if json:
        return print_json({"cluster": state.cluster, "complete": state.complete, "hosts": rows})
    print_table(rows)
    print_pairs({"cluster": state.cluster, "complete": "yes" if state.complete else "no: take it down"})
    print("start a program in a host with: ip netns exec NAMESPACE COMMAND")
