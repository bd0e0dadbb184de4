"""Whoever is measured takes turns, so that what else the machine does falls on all alike."""

from collections.abc import Callable, Sequence
from typing import Protocol

from executor.streams.network import SubTaskNetwork
from executor.streams.threads import StepTimes

__all__ = ["Stepper", "in_turns"]


class Stepper(Protocol):
    """Runs steps of a network in one way."""

    def step(self) -> StepTimes:
        """Run one step."""
        ...


def in_turns(
    network: SubTaskNetwork,
    steppers: Sequence[Stepper],
    rounds: int,
    *,
    warm_up: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[list[list[StepTimes]], list[float]]:
    """Let each run one step in every round.

    Args:
        network: Told which step begins.
        steppers: Who take turns, in this order.
        rounds: Those that count, >= 1.
        warm_up: Rounds before them.
        progress: Called as ``progress(label, done, total)``.

    Returns:
        By stepper, the times of the rounds that count, and the loss of its last step.
    """
    found: list[list[StepTimes]] = [[] for _ in steppers]
    losses = [0.0] * len(steppers)
    for number in range(rounds + warm_up):
        if progress:
            progress("schedules in turns", number, rounds + warm_up)
        for at, stepper in enumerate(steppers):
            network.begin(number)
            times = stepper.step()
            losses[at] = network.loss
            if number >= warm_up:
                found[at].append(times)
    return found, losses
