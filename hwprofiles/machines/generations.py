"""What is assumed about machines with GPUs of one generation: rates of links, channels, the library's constants."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from groundwork.units import GIGA
from hwprofiles.catalogue.cluster_catalogue import cluster_path
from hwprofiles.catalogue.cluster_reader import read_tree
from hwprofiles.machines.topology_graph import LinkRates


@dataclass(frozen=True, slots=True)
class Generation:
    """Usual rates of a generation's machines: payload, one way."""

    nvlink_gbyte_per_s: float
    nvlink_us: float
    pcie_gbyte_per_s: float
    inter_socket_gbyte_per_s: float
    card_gbit_per_s: float
    """Network card that such machines usually have."""
    kin: str
    """Cluster of the catalogue whose library's constants it takes."""
    sums_in_switch: bool = False
    """Flag that switches of NVLinks compute sums."""

    @property
    def rates(self) -> LinkRates:
        """Rates of links between vertices of a machine."""
        return LinkRates(
            nvlink_bytes_per_s=self.nvlink_gbyte_per_s * GIGA,
            pcie_bytes_per_s=self.pcie_gbyte_per_s * GIGA,
            inter_socket_bytes_per_s=self.inter_socket_gbyte_per_s * GIGA,
            nvlink_latency_s=self.nvlink_us * 1e-6,
            pcie_latency_s=0.4e-6,
            inter_socket_latency_s=1e-6,
        )


_PCIE_3 = Generation(18, 5.0, 12, 6, 56, "p100-4x4")
_GENERATIONS = {
    "p100": Generation(18, 5.0, 12, 6, 100, "dgx1-p100"),
    "v100": Generation(22, 1.4, 12, 9, 100, "abci-v100"),
    "t4": Generation(22, 1.4, 12, 9, 100, "abci-v100"),
    "a100": Generation(22.7, 1.6, 24.5, 18, 200, "dgx-a100"),
    "ga102": Generation(12.7, 1.6, 24.5, 18, 100, "dgx-a100"),
    "h100": Generation(21.4, 1.25, 52, 30, 400, "dgx-h100", sums_in_switch=True),
    "b200": Generation(42.8, 1.25, 52, 30, 400, "dgx-b200", sums_in_switch=True),
}
"""Rates of the catalogue's clusters, whose files name their sources; between sockets: assumed.  NVLinks of RTX 3090 and
A6000: 14.06 GB/s each (data sheet of the A6000: 112.5 GB/s for four in both directions), at A100's share of it."""


_ALIKE = {
    "h200": "h100",
    "rtx-2080ti": "t4",
    "rtx-8000": "t4",
    "rtx-3080": "ga102",
    "rtx-3090": "ga102",
    "rtx-a6000": "ga102",
}
"""Generations of profiles that do not begin with their name."""


def generation_of(profile: str) -> Generation:
    """Return what is assumed about machines with a GPU of the catalogue; PCIe 3 where it is of none of the kinds."""
    name = profile.partition("@")[0]
    return _GENERATIONS.get(_ALIKE.get(name, name.partition("-")[0]), _PCIE_3)


@lru_cache(maxsize=16)
def _library(kin: str) -> Mapping[str, Any]:
    """Return the section ``library`` of a cluster of the catalogue."""
    section = read_tree(cluster_path(kin))["library"]
    assert isinstance(section, dict), "clusters that generations name have the section"
    return section


def assumed_library(generation: Generation, *, switched: bool) -> dict[str, Any]:
    """Return the section ``library`` of the nearest cluster of the catalogue.

    Args:
        generation: Generation of the GPUs.
        switched: Whether switches join the NVLinks: only there are their sums, and the share of their rate that was
            measured over them.
    """
    section = dict(_library(generation.kin))
    section.pop("amd_hosts", None)  # GPUs do not say who made the processors
    if not switched:
        section.pop("in_switch", None)
        section.pop("near_share", None)
    return section
