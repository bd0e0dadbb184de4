"""Collectives: public times by system, number of devices and size, beside the prices of the cost model."""

import re
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
class MeasuredSystem:
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
    "DGX H100 1 node x 8": MeasuredSystem(cluster="dgx-h100"),
    "h100_sxm": MeasuredSystem(cluster="dgx-h100", fitted=((2, ""), (8, "all-reduce"))),
    "a100_sxm": MeasuredSystem(cluster="dgx-a100", fitted=((2, ""),)),
    "b200_sxm": MeasuredSystem(cluster="dgx-b200", fitted=((2, ""),)),
    "vtrain-a100": MeasuredSystem(cluster="vtrain-a100", fitted=((2, ""),)),
    "vtrain-v100": MeasuredSystem(cluster="dgx1-v100", fitted=((2, ""),)),
    "abci-vnode": MeasuredSystem(
        cluster="abci-v100:nodes=NODES",
        per_node=4,
        fitted=tuple((count, "all-reduce") for count in (4, 8, 16, 32, 64, 128))
        + tuple((count, "broadcast") for count in (8, 16, 32)),
    ),
    "abci-anode": MeasuredSystem(cluster="abci-a100:nodes=NODES"),
    "polaris": MeasuredSystem(cluster="polaris:nodes=NODES", per_node=4, fitted=_POLARIS_FITTED),
    "polaris setup5": MeasuredSystem(
        cluster="polaris:nodes=NODES,link.slingshot.transport=slingshot-rendezvous",
        per_node=4,
        fitted=_POLARIS_FITTED,
    ),
    "polaris setup2": MeasuredSystem(
        cluster="polaris:nodes=NODES,link.slingshot.transport=sockets", per_node=4, fitted=((8, ""), (32, ""))
    ),
    "alps": MeasuredSystem(cluster="alps:nodes=NODES", per_node=4),
    "p4de": MeasuredSystem(cluster="p4de:nodes=NODES", fitted=((16, "all-reduce"),)),
    "deepbench-p100": MeasuredSystem(cluster="pcie-4x2:nodes=NODES", tree=True),
    "deepbench-m40": MeasuredSystem(cluster="pcie-4x2:nodes=NODES", tree=True),
    "deepbench-titanx": MeasuredSystem(cluster="pcie-4x2:nodes=NODES", tree=True, fitted=((2, ""), (4, ""), (16, ""))),
    "deepbench-titanx_pascal": MeasuredSystem(cluster="pcie-2x5", tree=True),
    "deepbench-1080ti": MeasuredSystem(cluster="pcie-2x5", tree=True),
}


def collective_rows() -> Iterator[JudgedRow]:
    """Yield every measured collective; those of systems without a cluster or a price have no prediction."""
    for row in rows_of_table("collectives"):
        system = measured_system(row)
        predicted_s, reason = _priced(row, system)
        spread, way = _SPREAD[min(int(row.nodes), len(_SPREAD)) - 1], _way(row, system)
        yield collective_row(
            row,
            predicted_s,
            measure="all-reduce in PCIe trees" if system.tree else f"collectives {spread} {_kind_of_size(row)}",
            compared=f"{row.system}{way}{'' if system.tree else f' {spread}'}",
            reason=reason,
        )


def collective_row(row: Any, predicted_s: float, *, measure: str, compared: str, reason: str = "") -> JudgedRow:
    """Return a measured collective beside its prediction; arguments as fields of the result.

    Args:
        row: Row of the table.
        predicted_s: Predicted seconds, or NaN.
        measure: Its measure.
        compared: What the comparison's name says beside the collective and its size.
        reason: Why there is no prediction.
    """
    system = measured_system(row)
    setting = "" if row.setting in ("default", "half", "none") else f" {row.setting}"
    return JudgedRow(
        measure=measure,
        comparison=f"{row.collective}, {compared}, {_kind_of_size(row)}",
        label=f"{int(row.devices)} devices in {int(row.nodes)} nodes{setting}, {_size_text(row.size_bytes)}",
        group=f"{row.system}{_way(row, system)}",
        subject=f"{row.collective}, {int(row.devices)} devices in {int(row.nodes)} nodes{setting}",
        size=row.size_bytes,
        nodes=int(row.nodes),
        measured=row.time_us * MICRO,
        predicted=predicted_s,
        fitted=any(row.devices == count and what in ("", row.collective) for count, what in system.fitted),
        reason=reason,
        communication=1.0,
    )


def measured_system(row: Any) -> MeasuredSystem:
    """Return the cluster that stands for the system of a row."""
    return _SYSTEMS.get(f"{row.system} {row.setting}") or _SYSTEMS[row.system]


def _kind_of_size(row: Any) -> str:
    return f"{'above' if row.size_bytes > _MIB else 'up to'} 1 MiB"


def _way(row: Any, system: MeasuredSystem) -> str:
    """Return the transport of a row between machines, as names of comparisons have it."""
    return f" over {measured_transport(row, system)}" if row.nodes > 1 else ""


def measured_transport(row: Any, system: MeasuredSystem) -> str:
    """Return the transport of a system's cluster."""
    return cluster_transport(judged_spec(system.cluster.replace("NODES", str(int(row.nodes)))))


def measured_release(row: Any) -> str:
    """Return the release of NCCL by which collectives between machines were measured; empty if it is not known."""
    found = re.match(r"[0-9]+(\.[0-9]+)+", str(row.software)) if row.nodes > 1 else None
    return found[0] if found else ""


def _size_text(size_bytes: float) -> str:
    """Return a size in few digits."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes:g} B"


def _priced(row: Any, system: MeasuredSystem) -> tuple[float, str]:
    """Return the predicted seconds of a row, or NaN and the reason."""
    spec = system.cluster.replace("NODES", str(int(row.nodes)))
    if not _is_known(spec):
        return float("nan"), f"no cluster stands for {row.system}"
    if measured_release(row) and not system.tree:
        spec += f"{',' if ':' in spec else ':'}library.nccl.release={measured_release(row)}"
    devices = measured_members(row, system)
    if row.collective == "all-reduce":
        return all_reduce_price_s(spec, devices, row.size_bytes), ""
    network = routes_of_cluster(judged_cluster(spec))
    if network.library is None:
        return float("nan"), f"{row.collective} has a price only where the cluster has a library"
    seconds = library_collective_s(network, row.collective, devices, np.array(row.size_bytes), in_a_row=True)
    return float(seconds), ""


def measured_members(row: Any, system: MeasuredSystem) -> tuple[int, ...]:
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
