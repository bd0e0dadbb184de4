"""Settings of a probe: what is measured, by how many processes, and how exactly."""

from dataclasses import dataclass
from typing import Literal

from executor.runtime.run_options import typed_data_types, typed_strategies
from groundwork.errors import ConfigError
from groundwork.requests import option, whole_number

LEAST_SAMPLES = 5
"""Samples of every part are at least so many, unless fewer repetitions are requested."""
PORTION_BYTES = 1e9
"""Memory for the tensors of parts that are measured in turns with each other."""


def _typed_codecs(text: str) -> tuple[str, ...] | None:
    return typed_data_types(text) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """Parts of a model's layers to measure, and the processes and samples to measure them with."""

    batch: int = option(parser=whole_number, metavar="N", help="Samples in a mini-batch over all devices.")
    processes: int = option(low=1, metavar="N", help="Processes that compute at the same time, as ranks of a run do.")
    strategies: tuple[str, ...] = option(
        ("data", "model", "owt", "spatial"),
        parser=typed_strategies,
        typed="data,model,owt,spatial",
        metavar="S,S,...",
        help="Strategies, or strategy files, whose parts of layers are measured; all measures every part of every "
        "configuration that divides.",
    )
    device: Literal["auto", "cpu", "cuda"] = option(
        "auto",
        help="Device of each process; auto takes a GPU for each process where there are enough, else processors.",
    )
    threads: int = option(
        0, low=0, metavar="T", help="Threads that each process computes with; 0 shares the machine's cores equally."
    )
    repetitions: int = option(25, low=1, metavar="N", help="Largest number of samples of every part.")
    """Largest number of samples of every part; at least 5 are taken, or this many if fewer."""
    uncertainty: float = 0.01
    """Sampling ends once the standard error of the median of the samples' totals is so small a share of the median."""
    max_parts: int = option(400, low=1, metavar="N", help="Largest number of parts of one model; more are an error.")
    codecs: tuple[str, ...] | None = option(
        None,
        parser=_typed_codecs,
        metavar="T,T,...",
        help="Data types whose compression and decompression are timed; all types, with default parameters, if none "
        "are named.",
    )
    """None for all types; an empty tuple for no type."""

    def __post_init__(self) -> None:
        for name in ("batch", "processes", "max_parts", "repetitions"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not self.strategies:
            raise ConfigError("models and strategies must each name at least one, got none")
        if self.codecs:
            from planner.compression.data_types import compression

            for kind in self.codecs:
                compression(kind)

    @property
    def least_samples(self) -> int:
        """Smallest number of samples of every part."""
        return min(LEAST_SAMPLES, self.repetitions)
