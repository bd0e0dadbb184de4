"""``orrery read``: cluster files from what machines print about themselves."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orrery.terminal.options import JsonOption
from orrery.terminal.output import Out, out_files, out_option, print_json
from orrery.terminal.views import print_pairs

if TYPE_CHECKING:
    from hwprofiles.machines.machine_file import MachineFile


def orrery_read(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Files about one machine and its network: nvidia-smi topo -m, -L or -q -x, NCCL's topology"
            " (NCCL_TOPO_DUMP_FILE), lstopo's XML, nccl-tests, p2pBandwidthLatencyTest, ibstat, Slurm's topology.conf.",
        ),
    ],
    *,
    out: Annotated[Out, out_option("cluster.yaml", also=(".yml",))],
    device: Annotated[
        str, typer.Option(metavar="NAME", help="Compute profile or product name of the GPUs, where no file names them.")
    ] = "",
    cluster: Annotated[
        str, typer.Option(metavar="C", help="Cluster of the catalogue, or a cluster file, that the files refine.")
    ] = "",
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the new cluster.")] = "",
    json: JsonOption = False,
) -> None:
    """Make a cluster file of what machines print about themselves; say what is assumed."""
    from hwprofiles.machines.machine_file import machine_file
    from hwprofiles.machines.written_cluster import write_cluster_file

    with out_files(out) as (path,):
        found = machine_file(files, device=device, name=name, base=cluster)
        write_cluster_file(path, found.content, "Written by orrery read; assumed lists what no file says.")
    values = _values(found, out)
    print_json(values) if json else _print(values)


def _values(found: "MachineFile", out: Out) -> dict[str, Any]:
    """Return what was read, what it made, and what is assumed."""
    cluster = found.cluster
    return {
        "cluster_file": str(out.files[0]),
        "read": list(found.read),
        "devices": len(cluster.devices),
        "machines": cluster.node_count,
        "profile": cluster.devices[0].profile,
        "link_classes": {
            name: {key: value for key, value in row.items() if key.startswith(("bandwidth", "latency_us"))}
            for name, row in found.content["link_classes"].items()
        },
        "assumed": list(found.content.get("assumed", ())),
    }


def _print(values: dict[str, Any]) -> None:
    """Print what was read, the cluster, and what is assumed."""
    print_pairs(
        {
            "devices": values["devices"],
            "machines": values["machines"],
            "compute profile": values["profile"],
            "links": "; ".join(
                f"{name} {row[field]} {unit}"
                for name, row in values["link_classes"].items()
                for field, unit in (("bandwidth_gbyte_per_s", "GB/s"), ("bandwidth_gbit_per_s", "Gbit/s"))
                if field in row
            ),
            "cluster file": values["cluster_file"],
        }
    )
    print("\n".join(f"{key}: {each}" for key in ("read", "assumed") for each in values[key]))
