"""Instructions for the ranks of a validation, and the files in which they leave what they measured."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from executor.probe.codec_probe import CodecRow
from executor.probe.measured_rows import ProbeRow
from executor.runtime.run_options import RunOptions
from executor.validation.validation_request import check_bounds
from groundwork.errors import ConfigError
from groundwork.whole_files import replacing


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationSpec:
    """Plans that take turns, and the bounds at which the turns end."""

    plans: dict[str, str]
    """Path of the lowered program of each strategy, by the strategy's name."""
    types: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Data types whose compression and decompression are timed beside a strategy, by the strategy's name."""
    run: RunOptions
    """Settings with which each plan is run; its plan and steps are not read."""
    rounds: int = 12
    """Largest number of rounds; in a round each plan has one turn."""
    turn_s: float = 2.0
    """Length of the counted iterations of one turn, about, in seconds."""
    spread: float = 0.02
    """Rounds end when every median is known to this share of itself, as ``executor.validation.spread`` defines it."""
    budget_s: float = 300.0
    """Time after which no round begins, in seconds."""

    def __post_init__(self) -> None:
        if not self.plans:
            raise ConfigError("strategies must name at least one, got none")
        check_bounds(rounds=self.rounds, turn_s=self.turn_s, spread=self.spread, budget_s=self.budget_s)


def order_of(spec: ValidationSpec, turn: int) -> list[str]:
    """Return the strategies in the order of a round: shuffled, so that none always follows the same other."""
    names = sorted(spec.plans)
    return [names[i] for i in np.random.default_rng([spec.run.seed, turn]).permutation(len(names))]


def measurement_path(spec: ValidationSpec, name: str, turn: int) -> Path:
    """Return the file in which rank 0 leaves what was measured of a strategy in one round."""
    return Path(spec.run.out) / f"{Path(spec.plans[name]).stem}-{turn}.npz"


def write_spec(spec: ValidationSpec, path: Path) -> None:
    """Write a specification for the ranks to read."""
    path.write_bytes(msgspec.json.encode(spec))


def read_spec(path: Path) -> ValidationSpec:
    """Read what ``write_spec`` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=ValidationSpec)


def write_device_names(spec: ValidationSpec, names: dict[str, str]) -> None:
    """Write the names of rank 0's device and of the back end that carries its messages."""
    _device_names_path(spec).write_bytes(msgspec.json.encode(names))


def read_device_names(spec: ValidationSpec) -> dict[str, str]:
    """Read what ``write_device_names`` wrote."""
    return msgspec.json.decode(_device_names_path(spec).read_bytes(), type=dict[str, str])


def _device_names_path(spec: ValidationSpec) -> Path:
    return Path(spec.run.out) / "device.json"


@dataclass(frozen=True, slots=True)
class PlanSamples:
    """Times that all ranks sampled between the turns of a plan."""

    parts: tuple[ProbeRow, ...] = ()
    """Times of the parts of its layers, by the ranks that hold them; none where waits stood in for arithmetic."""
    codecs: tuple[CodecRow, ...] = ()
    """Times of the data types that it sends; none where nothing was compressed."""


def write_plan_samples(spec: ValidationSpec, name: str, samples: PlanSamples) -> None:
    """Write what was sampled for a plan."""
    with replacing(_samples_path(spec, name)) as file:  # the ranks may be ended at any time
        file.write_bytes(msgspec.json.encode(samples))


def read_plan_samples(spec: ValidationSpec, name: str) -> PlanSamples:
    """Read what ``write_plan_samples`` wrote; without a file there are no samples."""
    path = _samples_path(spec, name)
    return msgspec.json.decode(path.read_bytes(), type=PlanSamples) if path.exists() else PlanSamples()


def _samples_path(spec: ValidationSpec, name: str) -> Path:
    return Path(spec.run.out) / f"{Path(spec.plans[name]).stem}-samples.json"


def write_rounds(spec: ValidationSpec, rounds: int) -> None:
    """Write how many rounds are finished: all that was measured in them is there."""
    with replacing(_rounds_path(spec)) as file:
        file.write_text(str(rounds))


def read_rounds(spec: ValidationSpec) -> int:
    """Read what ``write_rounds`` wrote last; without a file no round is finished."""
    path = _rounds_path(spec)
    return int(path.read_text()) if path.exists() else 0


def _rounds_path(spec: ValidationSpec) -> Path:
    return Path(spec.run.out) / "rounds.txt"
