"""Probes: the machine at hand measured as a cluster file and a compute profile.

For use inside an open process group, between training iterations, there are ``LayerProbe``, ``parts_of``,
``over_ranks``, ``measure_device``, ``measure_links`` and ``write_profile``; ``probe`` starts processes of its own.
"""

from executor.probe.coding import CODED_TYPES, CodingProbe, CodingRow
from executor.probe.device import DeviceFacts, measure_device
from executor.probe.layers import LayerProbe
from executor.probe.links import Links, measure_links
from executor.probe.parts import ProbePart, parts_of, strategy_parts
from executor.probe.probe import Probed, probe
from executor.probe.profile import write_profile
from executor.probe.rows import ProbeRow, Samples, over_ranks

__all__ = [
    "CODED_TYPES",
    "CodingProbe",
    "CodingRow",
    "DeviceFacts",
    "LayerProbe",
    "Links",
    "ProbePart",
    "ProbeRow",
    "Probed",
    "Samples",
    "measure_device",
    "measure_links",
    "over_ranks",
    "parts_of",
    "probe",
    "strategy_parts",
    "write_profile",
]
