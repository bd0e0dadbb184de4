"""Probes: the machine at hand measured as a cluster file and a compute profile.

For use inside an open process group, between training iterations, there are ``LayerProbe``, ``parts_of``,
``over_ranks``, ``measure_device``, ``measure_links`` and ``write_profile``; ``probe`` starts processes of its own.
"""

from executor.probe.codec_probe import CODED_TYPES, CodingProbe, CodingRow
from executor.probe.device_probe import DeviceFacts, measure_device
from executor.probe.layer_probe import LayerProbe
from executor.probe.link_probe import MeasuredLinks, measure_links
from executor.probe.measured_rows import ProbeRow, TimeSamples, over_ranks
from executor.probe.parts_to_measure import ProbePart, parts_of, strategy_parts
from executor.probe.probe_run import Probed, probe
from executor.probe.probed_profile import write_profile

__all__ = [
    "CODED_TYPES",
    "CodingProbe",
    "CodingRow",
    "DeviceFacts",
    "LayerProbe",
    "MeasuredLinks",
    "ProbePart",
    "ProbeRow",
    "Probed",
    "TimeSamples",
    "measure_device",
    "measure_links",
    "over_ranks",
    "parts_of",
    "probe",
    "strategy_parts",
    "write_profile",
]
