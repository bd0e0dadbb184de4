"""Instructions for the ranks of a probe, and the result that rank 0 leaves."""

from collections.abc import Sequence
from dataclasses import dataclass

from executor.probe.codec_probe import CodecRow
from executor.probe.device_probe import DeviceFacts
from executor.probe.link_probe import MeasuredLinks
from executor.probe.measured_rows import ProbeRow
from executor.probe.parts_to_measure import ProbePart, divided_parts, portions
from executor.probe.probe_settings import PORTION_BYTES, ProbeSettings
from groundwork.errors import ConfigError
from planner.compression.data_types import COMPRESSIONS
from planner.graph.computation_graph import ComputationGraph
from planner.models.registry import load_model

ALL_TYPES = tuple(name for name in COMPRESSIONS if name != "float32")
"""Data types whose compression is timed if none are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """Models to measure, with the settings of the probe."""

    models: tuple[str, ...]
    settings: ProbeSettings
    """``threads`` is the number that each rank computes with."""

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError("models and strategies must each name at least one, got none")

    @property
    def codec_types(self) -> tuple[str, ...]:
        """Data types whose compression and decompression are timed."""
        if self.settings.codecs is not None:
            return self.settings.codecs
        return ALL_TYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """Everything that the ranks of a probe measured together."""

    rows: tuple[ProbeRow, ...]
    device: DeviceFacts
    links: MeasuredLinks
    codecs: tuple[CodecRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Portion:
    """Parts of one model that are measured in turns with each other."""

    graph: ComputationGraph
    parts: Sequence[ProbePart]
    first: int
    """Number of the first part among all parts of the request."""


def portions_of(request: ProbeRequest) -> list[Portion]:
    """Return everything that is to be measured, in order.

    Raises:
        ConfigError: A model or strategy is unknown or does not fit the processes, or there are too many parts.
    """
    settings, work, first = request.settings, list[Portion](), 0
    for name in request.models:
        graph = load_model(name, batch=settings.batch)
        divided = divided_parts(graph, settings.strategies, settings.processes, most=settings.max_parts)
        for divided_graph, parts in divided:
            for portion in portions(divided_graph, parts, PORTION_BYTES):
                work.append(Portion(divided_graph, portion, first))
                first += len(portion)
    return work
