"""What the ranks of a probe are asked, and what rank 0 answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from executor.probe.codec_probe import CODED_TYPES, CodingRow
from executor.probe.device_probe import DeviceFacts
from executor.probe.link_probe import MeasuredLinks
from executor.probe.measured_rows import ProbeRow
from executor.probe.parts_to_measure import ProbePart, divided_parts, portions
from hwprofiles import ConfigError
from planner.compression import compression
from planner.graph import ComputationGraph
from planner.models import load_model

__all__ = ["ANSWER", "Portion", "ProbeAnswer", "ProbeRequest", "portions_of", "read_answer", "read_request", "write"]

ANSWER = "answer.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """What is measured, and how."""

    models: tuple[str, ...]
    batch: int
    strategies: tuple[str, ...]
    """Names or files; ``all``: every configuration that divides."""
    processes: int
    device: str
    threads: int
    least: int
    """Samples of every part, at least."""
    most: int
    """Samples of every part, at most."""
    uncertainty: float
    """Enough samples are taken once the standard error of the median of their sums is so small a share of it."""
    max_parts: int
    """Of one model."""
    portion_bytes: float
    """Of the tensors of parts that are measured in turns with each other."""
    codings: tuple[str, ...] = CODED_TYPES
    """Data types whose encoding and decoding are measured."""

    def __post_init__(self) -> None:
        for name in ("batch", "processes", "max_parts"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.most < 1:
            raise ConfigError(f"repetitions must be >= 1, got {self.most}")
        if not self.models or not self.strategies:
            raise ConfigError("models and strategies must each name at least one, got none")
        for kind in self.codings:
            compression(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """What all ranks measured together."""

    rows: tuple[ProbeRow, ...]
    device: DeviceFacts
    links: MeasuredLinks
    coding: tuple[CodingRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Portion:
    """Parts of one model that take turns."""

    graph: ComputationGraph
    parts: Sequence[ProbePart]
    first: int
    """Number of the first part among all of the request."""


def portions_of(request: ProbeRequest) -> list[Portion]:
    """All that is to be measured, in order.

    Raises:
        ConfigError: A model or strategy is unknown or cannot be had, or there are too many parts.
    """
    found, first = [], 0
    for name in request.models:
        graph = load_model(name, batch=request.batch)
        for divided, parts in divided_parts(graph, request.strategies, request.processes, most=request.max_parts):
            for portion in portions(divided, parts, request.portion_bytes):
                found.append(Portion(divided, portion, first))
                first += len(portion)
    return found


def write(value: ProbeRequest | ProbeAnswer, path: Path) -> None:
    """Write one of the two for the other side to read."""
    partial = path.with_name(f".{path.name}.part")
    partial.write_bytes(msgspec.json.encode(value))
    partial.replace(path)


def read_request(path: Path) -> ProbeRequest:
    """Read what the ranks are asked."""
    return msgspec.json.decode(path.read_bytes(), type=ProbeRequest)


def read_answer(path: Path) -> ProbeAnswer:
    """Read what rank 0 answered."""
    return msgspec.json.decode(path.read_bytes(), type=ProbeAnswer)
