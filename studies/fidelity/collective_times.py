"""Collectives: public times by system, number of devices and size, beside the prices of the cost model."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from groundwork.units import MICRO
from hwprofiles.catalogue.cluster_catalogue import cluster_names, cluster_transport, load_cluster
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.all_reduce import choose_all_reduce
from planner.cost.library_rounds import library_collective_s
from planner.graph.computation_graph import Layer
from planner.graph.shapes import Shape
from planner.layouts.configurations import CHANNELS, ConfigSpace, Configuration, space_of
from planner.operations.linear import Linear
from planner.topology.network_routes import routes_of_cluster
from studies.fidelity.device_names import rows_of_table
from studies.fidelity.judged_row import JudgedRow

_MIB = 2**20
_SPREAD = ("in one machine", "between two machines", "between more machines")
"""How collectives are spread, by the number of machines."""
_FOLDER = Path(__file__).parent / "clusters"


@dataclass(frozen=True, slots=True, kw_only=True)
class _System:
    """The cluster that stands for a measured system."""

    cluster: str
    """Name in the catalogue or, where it has none such, of a file in this folder; ``NODES`` is filled in."""
    tree: bool = False
    """True for GPUs that PCIe switches join."""
    fitted: tuple[tuple[int, str], ...] = ()
    """Devices and collective, empty for all, of the rows that determined numbers of the cluster or its transport."""
    per_node: int = 8
    """Devices of a machine that took part where several machines did."""


_POLARIS_FITTED = ((8, "all-reduce"), (8, "all-gather"), (32, ""), (1024, "all-reduce"))
_SYSTEMS = {
    "DGX H100 1 node x 8": _System(cluster="dgx-h100"),
    "h100_sxm": _System(cluster="dgx-h100", fitted=((2, ""), (8, "all-reduce"))),
    "a100_sxm": _System(cluster="dgx-a100", fitted=((2, ""),)),
    "b200_sxm": _System(cluster="dgx-b200", fitted=((2, ""),)),
    "vtrain-a100": _System(cluster="vtrain-a100", fitted=((2, ""),)),
    "vtrain-v100": _System(cluster="dgx1-v100", fitted=((2, ""),)),
    "abci-vnode": _System(
        cluster="abci-v100:nodes=NODES",
        per_node=4,
        fitted=tuple((count, "all-reduce") for count in (4, 8, 16, 32, 64, 128))
        + tuple((count, "broadcast") for count in (8, 16, 32)),
    ),
    "abci-anode": _System(cluster="abci-a100:nodes=NODES"),
    "polaris": _System(cluster="polaris:nodes=NODES", per_node=4, fitted=_POLARIS_FITTED),
    "polaris setup5": _System(
        cluster="polaris:nodes=NODES,link.slingshot.transport=slingshot-rendezvous",
        per_node=4,
        fitted=_POLARIS_FITTED,
    ),
    "polaris setup2": _System(
        cluster="polaris:nodes=NODES,link.slingshot.transport=sockets", per_node=4, fitted=((8, ""), (32, ""))
    ),
    "alps": _System(cluster="alps:nodes=NODES", per_node=4),
    "p4de": _System(cluster="p4de:nodes=NODES", fitted=((16, "all-reduce"),)),
    "deepbench-p100": _System(cluster="pcie-4x2:nodes=NODES", tree=True),
    "deepbench-m40": _System(cluster="pcie-4x2:nodes=NODES", tree=True),
    "deepbench-titanx": _System(cluster="pcie-4x2:nodes=NODES", tree=True, fitted=((2, ""), (4, ""), (16, ""))),
    "deepbench-titanx_pascal": _System(cluster="pcie-2x5", tree=True),
    "deepbench-1080ti": _System(cluster="pcie-2x5", tree=True),
}


def collective_rows() -> Iterator[JudgedRow]:
    """Yield every measured collective; those of systems without a cluster or a price have no prediction."""
    for row in rows_of_table("collectives"):
        system = _SYSTEMS.get(f"{row.system} {row.setting}") or _SYSTEMS[row.system]
        predicted_s, reason = _priced(row, system)
        size = f"{'above' if row.size_bytes > _MIB else 'up to'} 1 MiB"
        spread = _SPREAD[min(int(row.nodes), len(_SPREAD)) - 1]
        way = f" over {_transport(row, system)}" if row.nodes > 1 else ""
        setting = "" if row.setting in ("default", "half", "none") else f" {row.setting}"
        yield JudgedRow(
            measure="all-reduce in PCIe trees" if system.tree else f"collectives {spread} {size}",
            comparison=f"{row.collective}, {row.system}{way}{'' if system.tree else f' {spread}'}, {size}",
            label=f"{int(row.devices)} devices in {int(row.nodes)} nodes{setting}, {_size_text(row.size_bytes)}",
            group=f"{row.system}{way}",
            subject=f"{row.collective}, {int(row.devices)} devices in {int(row.nodes)} nodes{setting}",
            size=row.size_bytes,
            nodes=int(row.nodes),
            measured=row.time_us * MICRO,
            predicted=predicted_s,
            fitted=any(row.devices == count and what in ("", row.collective) for count, what in system.fitted),
            reason=reason,
            communication=1.0,
        )


def _transport(row: Any, system: _System) -> str:
    """Return the transport of a system's cluster."""
    return cluster_transport(judged_spec(system.cluster.replace("NODES", str(int(row.nodes)))))


def _size_text(size_bytes: float) -> str:
    """Return a size in few digits."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes:g} B"


def _priced(row: Any, system: _System) -> tuple[float, str]:
    """Return the predicted seconds of a row, or NaN and the reason."""
    spec = system.cluster.replace("NODES", str(int(row.nodes)))
    if not _is_known(spec):
        return float("nan"), f"no cluster stands for {row.system}"
    devices = _members(row, system)
    if row.collective == "all-reduce":
        return all_reduce_price_s(spec, devices, row.size_bytes), ""
    network = routes_of_cluster(judged_cluster(spec))
    if network.library is None:
        return float("nan"), f"{row.collective} has a price only where the cluster has a library"
    seconds = library_collective_s(network, row.collective, devices, np.array(row.size_bytes), in_a_row=True)
    return float(seconds), ""


def _members(row: Any, system: _System) -> tuple[int, ...]:
    """Return the devices that take part: as many of each machine, the first ones."""
    nodes, devices = int(row.nodes), int(row.devices)
    each, size = devices // nodes, system.per_node
    return tuple(node * size + device for node in range(nodes) for device in range(each))


def _is_known(spec: str) -> bool:
    """Return whether the catalogue or this folder has a cluster."""
    name = spec.partition(":")[0]
    return name in cluster_names() or (_FOLDER / f"{name}.yaml").exists()


@lru_cache
def judged_cluster(spec: str) -> DeviceGraph:
    """Return a cluster of the catalogue or of this folder."""
    return load_cluster(judged_spec(spec))


def judged_spec(spec: str) -> str:
    """Return a specification of the catalogue's, or of a file in this folder."""
    name, colon, values = spec.partition(":")
    return spec if name in cluster_names() else f"{_FOLDER / name}.yaml{colon}{values}"


@lru_cache
def _replicas(devices: tuple[int, ...], count: int) -> ConfigSpace:
    """Return the space of one layer with a replica on each of some devices."""
    operation = Linear(channels=1, bias=False)
    batch = Shape(("sample", "channel"), (len(devices), 1))
    layer = Layer("buffer", operation, ("input",), (batch,), operation.output((batch,)))
    return space_of(layer, Configuration({"sample": len(devices)}, devices), count)


def all_reduce_price_s(cluster: str, devices: tuple[int, ...], size_bytes: float) -> float:
    """Return the price of an all-reduce, as the cluster's library chooses, or by the fastest algorithm without one."""
    network = routes_of_cluster(judged_cluster(cluster))
    scheme = "auto" if network.library is None else "library"
    space = _replicas(devices, network.device_count)
    return choose_all_reduce(network, scheme, space, float(size_bytes), split=CHANNELS).price_s
