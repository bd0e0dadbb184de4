"""Collectives between more machines as ``orrery calibrate`` predicts them from measurements on one and two.

A series is what one user measures: one machine's collectives, by one release of the library and one setting of its
network.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from groundwork.array_types import Floats
from groundwork.units import MICRO
from hwprofiles.catalogue.cluster_catalogue import cluster_of_content, cluster_path
from hwprofiles.catalogue.cluster_reader import read_tree
from hwprofiles.machines.refined_network import with_release, with_transport
from hwprofiles.readers.facts import Collectives
from planner.cost.library_rounds import library_collective_s
from planner.topology.network_routes import ClusterRoutes
from studies.calibrate.library_fit import fitted_library
from studies.fidelity.collective_times import (
    collective_row,
    measured_members,
    measured_release,
    measured_system,
    measured_transport,
)
from studies.fidelity.device_names import rows_of_table
from studies.fidelity.judged_row import CALIBRATED_MEASURE, JudgedRow

_FITTED_NODES = 2
"""Machines up to which rows are calibrated to; those on more are judged."""
_SYSTEMS = ("abci-vnode", "polaris")
"""Systems with rows on both sides."""


def calibrated_rows() -> Iterator[JudgedRow]:
    """Yield the collectives on more machines, by the cluster file that a fit to those on one and two makes."""
    series = dict[tuple[str, str, str], list[Any]]()
    for row in rows_of_table("collectives"):
        if row.system in _SYSTEMS:
            series.setdefault((row.system, row.setting, row.software), []).append(row)
    for (name, setting, release), rows in series.items():
        content = calibrated_content([row for row in rows if row.nodes <= _FITTED_NODES])
        compared = f"{name}{'' if setting == 'default' else f' {setting}'}, NCCL {release}, calibrated on two machines"
        for own in _alike([row for row in rows if row.nodes > _FITTED_NODES]):
            for row, seconds in zip(own, _priced_s(content, own).tolist(), strict=True):
                yield collective_row(row, seconds, measure=CALIBRATED_MEASURE, compared=compared)


def calibrated_content(rows: Sequence[Any]) -> dict[str, Any]:
    """Return the content of the cluster file that ``orrery calibrate`` makes of the rows of one series."""
    system, measured = measured_system(rows[0]), list[Collectives]()
    for own in _alike(rows):
        nodes, devices = int(own[0].nodes), int(own[0].devices)
        collectives = Collectives(
            origin=f"{own[0].collective} on {devices} devices of {nodes} machines",
            collective=own[0].collective,
            hosts=tuple(f"machine{rank * nodes // devices}" for rank in range(devices)),
            models=("",) * devices,
            size_bytes=tuple(row.size_bytes for row in own),
            time_s=tuple(row.time_us * MICRO for row in own),
            transport=measured_transport(own[0], system),
            release=measured_release(own[0]),
        )
        measured.append(collectives)
    tree = read_tree(cluster_path(system.cluster.partition(":")[0]))
    content = {str(key): value for key, value in tree.items()}
    return fitted_library(with_release(with_transport(content, measured), measured), measured).content


def _alike(rows: Sequence[Any]) -> list[list[Any]]:
    """Return the rows of each collective over the same devices."""
    groups = dict[tuple[str, float, float], list[Any]]()
    for row in rows:
        groups.setdefault((row.collective, row.nodes, row.devices), []).append(row)
    return list(groups.values())


def _priced_s(content: Mapping[str, Any], rows: Sequence[Any]) -> Floats:
    """Return the seconds of a collective's sizes on as many machines of a fitted cluster file."""
    nodes = {**content["parameters"]["nodes"], "default": int(rows[0].nodes)}
    more = {**content, "parameters": {**content["parameters"], "nodes": nodes}}
    network = ClusterRoutes(cluster_of_content(more, "calibrated cluster"))
    devices = measured_members(rows[0], measured_system(rows[0]))
    sizes = np.array([row.size_bytes for row in rows])
    return library_collective_s(network, rows[0].collective, devices, sizes, in_a_row=True)
