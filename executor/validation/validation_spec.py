"""What the ranks of a validation are told: plans, and how often each is run in turn."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from executor.probe import CodingRow, ProbeRow
from executor.runtime import RunOptions
from hwprofiles import ConfigError

__all__ = [
    "PlanSamples",
    "Spec",
    "check_bounds",
    "measurement_path",
    "order_of",
    "read_place",
    "read_samples",
    "read_spec",
    "write_place",
    "write_samples",
    "write_spec",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Which plans take turns, and when it is enough."""

    plans: dict[str, str]
    """By strategy, the path of its lowered program."""
    types: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By strategy, the data types whose encoding and decoding is sampled beside it."""
    run: RunOptions
    """How each is run; its plan and steps are not read."""
    rounds: int = 12
    """At most."""
    turn_s: float = 2.0
    """Counted iterations of one strategy in one round last about so long."""
    spread: float = 0.02
    """Rounds end when every median is known to this share of itself, as ``executor.validation.spread`` knows it."""
    budget_s: float = 300.0
    """No round begins after so long."""

    def __post_init__(self) -> None:
        if not self.plans:
            raise ConfigError("strategies must name at least one, got none")
        check_bounds(rounds=self.rounds, turn_s=self.turn_s, spread=self.spread, budget_s=self.budget_s)


def check_bounds(**bounds: float) -> None:
    """Refuse bounds that are not positive, by name.

    Raises:
        ConfigError: One is not.
    """
    for name, value in bounds.items():
        if not value > 0:
            raise ConfigError(f"{name} must be > 0, got {value}")


def order_of(spec: Spec, turn: int) -> list[str]:
    """Strategies in the order of a round: shuffled, so that no strategy always follows the same other."""
    names = sorted(spec.plans)
    return [names[i] for i in np.random.default_rng([spec.run.seed, turn]).permutation(len(names))]


def measurement_path(spec: Spec, name: str, turn: int) -> Path:
    """File in which rank 0 leaves what was measured of a strategy in one round."""
    return Path(spec.run.out) / f"{Path(spec.plans[name]).stem}-{turn}.npz"


def write_spec(spec: Spec, path: Path) -> None:
    """Write a specification for the ranks to read."""
    path.write_bytes(msgspec.json.encode(spec))


def read_spec(path: Path) -> Spec:
    """Read what ``write_spec`` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Spec)


def write_place(spec: Spec, place: dict[str, str]) -> None:
    """Write where rank 0 computes: the names of its device and of the back end that carries messages."""
    _place_path(spec).write_bytes(msgspec.json.encode(place))


def read_place(spec: Spec) -> dict[str, str]:
    """Read what ``write_place`` wrote."""
    return msgspec.json.decode(_place_path(spec).read_bytes(), type=dict[str, str])


def _place_path(spec: Spec) -> Path:
    return Path(spec.run.out) / "place.json"


@dataclass(frozen=True, slots=True)
class PlanSamples:
    """What was sampled between the turns of a plan, by all ranks."""

    parts: tuple[ProbeRow, ...] = ()
    """Of its layers, by the ranks that hold them; none where arithmetic was stood in for."""
    coding: tuple[CodingRow, ...] = ()
    """Of the types that it sends; none where nothing was encoded."""


def write_samples(spec: Spec, name: str, samples: PlanSamples) -> None:
    """Write what was sampled for a plan."""
    _samples_path(spec, name).write_bytes(msgspec.json.encode(samples))


def read_samples(spec: Spec, name: str) -> PlanSamples:
    """Read what ``write_samples`` wrote; nothing where it did not."""
    path = _samples_path(spec, name)
    return msgspec.json.decode(path.read_bytes(), type=PlanSamples) if path.exists() else PlanSamples()


def _samples_path(spec: Spec, name: str) -> Path:
    return Path(spec.run.out) / f"{Path(spec.plans[name]).stem}-samples.json"
