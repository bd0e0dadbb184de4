"""Points of one curve, made when they are first asked for, and the answer that a boundary on it gives."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from groundwork.errors import ConfigError
from groundwork.progress import Progress, keeping
from groundwork.units import HOUR_S
from studies.size.boundary import Boundary
from studies.size.size_answer import CurvePoint, SizeAnswer
from studies.size.sized_point import Subject
from studies.size.training import TrainingRun, power_sources


@dataclass(slots=True, eq=False)
class TriedPoints:
    """Points by position in the order of candidates."""

    make: Callable[[int], CurvePoint]
    """Makes the point of a position."""
    label: str
    """What is counted, for progress."""
    progress: Progress | None = None
    points: dict[int, CurvePoint] = field(default_factory=dict)

    def __getitem__(self, at: int) -> CurvePoint:
        """Return the point at a position."""
        if at not in self.points:
            if self.progress:
                self.progress(f"{self.label} {at + 1}", len(self.points), len(self.points) + 1)
            self.points[at] = self.make(at)
        return self.points[at]

    def quantity(self, at: int) -> float:
        """Return the quantity of the point at a position."""
        return self[at].quantity

    def curve(self) -> tuple[CurvePoint, ...]:
        """Return all points in order."""
        return tuple(self.points[at] for at in sorted(self.points))

    def parted(self, *, holds: bool) -> tuple[tuple[CurvePoint, ...], tuple[CurvePoint, ...]]:
        """Return the points before the first that holds, or the first that does not, and those from it on."""
        curve = self.curve()
        first = next((i for i, each in enumerate(curve) if each.holds == holds), len(curve))
        return curve[:first], curve[first:]


def scan_notes(found: Boundary) -> tuple[str, ...]:
    """Return what is to be said of a search whose values were not monotone."""
    if not found.scanned:
        return ()
    how = "every candidate before the boundary was tried" if found.complete else "the first 64 were tried one by one"
    return (f"the values do not change steadily along the curve, so {how}",)


def best_so_far(
    curve: Callable[[], Sequence[CurvePoint]], answer: Callable[[], SizeAnswer]
) -> AbstractContextManager[None]:
    """Return what lets an interrupted search bring the answer that its points give; nothing where none has a plan."""

    def finished() -> SizeAnswer | None:
        has_plan = any(not each.point.refusal for each in curve())
        return replace(answer(), interrupted=True) if has_plan else None

    return keeping(finished)


def explained(answer: SizeAnswer) -> SizeAnswer:
    """Return an answer with what sets the pace on both sides of the boundary, and notes on batches and energy.

    Raises:
        ConfigError: No point has a plan, and not for lack of memory.
    """
    notes = list(answer.notes)
    shown = answer.best or next((each for each in (*answer.failing, *answer.curve) if not each.point.refusal), None)
    if shown is None:
        if not any(each.point.needed_bytes for each in answer.curve):
            raise ConfigError("; ".join(dict.fromkeys(each.point.refusal for each in answer.curve)))
        return answer
    if shown.cost is not None:
        if shown.point.subject.batch_per_device:
            notes.append("the batch grows with the devices; as many epochs are counted for every batch")
        if shown.cost.energy_kwh is not None:
            sources = "; ".join(power_sources(shown.point.profiles))
            notes.append(f"energy: boards at their power limit, without hosts and cooling ({sources})")
    fails = next((each for each in answer.failing if not each.point.refusal and each is not shown), None)
    failing_pace = fails.point.pace() if fails is not None else None
    return replace(answer, pace=shown.point.pace(), failing_pace=failing_pace, notes=tuple(notes))


def run_text(subject: Subject, training: TrainingRun) -> str:
    """Return a training run in words."""
    epochs = f"{training.epochs:,} epoch{'s' * (training.epochs != 1)}"
    return f"{subject.model} for {epochs} of {training.samples:,} samples"


def hours_text(seconds: float) -> str:
    """Return a time in hours, or in seconds if it is shorter than six minutes."""
    factor, unit = (HOUR_S, "h") if seconds >= 0.1 * HOUR_S else (1.0, "s")
    return f"{float(f'{seconds / factor:.3g}'):,g} {unit}"


def check_positive(name: str, value: float) -> None:
    """Refuse what is no positive number.

    Raises:
        ConfigError: The value is not finite and above 0.
    """
    if not 0 < value < math.inf:
        raise ConfigError(f"{name} must be finite and > 0, got {value!r}")
