"""A validation as its ranks get it, and the files in which rank 0 leaves what each round has measured."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from executor.measurement.measured_run import Measurement
from executor.probe.codec_probe import CodecRow
from executor.probe.measured_rows import ProbeRow
from executor.runtime.run_options import RunOptions
from executor.validation.validation_request import ValidationRequest
from groundwork.whole_files import replacing
from planner.lowering.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationJob:
    """Plans that take turns, and the settings with which each is run."""

    request: ValidationRequest
    """Bounds at which the turns end."""
    programs: Mapping[str, tuple[Program, bool]]
    """Lowered program of each strategy, with whether batch normalisation takes its statistics over the whole batch, by
    the strategy's name: ranks start sooner without planning."""
    types: Mapping[str, tuple[str, ...]]
    """Data types whose compression and decompression are timed beside a strategy, by the strategy's name."""
    run: RunOptions

    def order(self, turn: int) -> list[str]:
        """Return the strategies in the order of a round: shuffled, so that none always follows the same other."""
        names = sorted(self.programs)
        return [names[i] for i in np.random.default_rng([self.run.seed, turn]).permutation(len(names))]


@dataclass(frozen=True, slots=True)
class PlanSamples:
    """Times that all ranks sampled between the turns of a plan."""

    parts: tuple[ProbeRow, ...] = ()
    """Times of the parts of its layers, by the ranks that hold them; none where waits stood in for arithmetic."""
    codecs: tuple[CodecRow, ...] = ()
    """Times of the data types that it sends; none where nothing was compressed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRound:
    """What was measured in a round, in which each plan has one turn, by the plan's name."""

    place: dict[str, str]
    """Names of rank 0's device and of the back end that carries its messages."""
    measured: dict[str, Measurement]
    samples: dict[str, PlanSamples]
    """Of this round and of all before."""


def write_round(folder: Path, turn: int, finished: FinishedRound) -> None:
    """Write what was measured in a round; the ranks may be ended at any time."""
    with replacing(_round_file(folder, turn)) as file:
        file.write_bytes(pickle.dumps(finished))


def read_rounds(folder: Path) -> list[FinishedRound]:
    """Return all rounds that are finished, in order."""
    rounds: list[FinishedRound] = []
    while (file := _round_file(folder, len(rounds))).exists():
        rounds.append(pickle.loads(file.read_bytes()))
    return rounds


def _round_file(folder: Path, turn: int) -> Path:
    return folder / f"round-{turn}"
