"""Measurements in turns, so that other load of the machine affects all of them alike."""

from collections.abc import Sequence
from typing import Protocol

from executor.streams.network import SubTaskNetwork
from executor.streams.threads import StepTimes
from groundwork.progress import Progress


class StepRunner(Protocol):
    """Runner of steps of a network, such as one schedule."""

    def step(self) -> StepTimes:
        """Run one step."""
        ...


def in_turns(
    network: SubTaskNetwork,
    runners: Sequence[StepRunner],
    rounds: int,
    *,
    warm_up: int,
    progress: Progress | None = None,
) -> tuple[list[list[StepTimes]], list[float]]:
    """Let each runner run one step in every round.

    Returns:
        Times of the counted rounds, and the loss of the last step, both by runner.
    """
    steps: list[list[StepTimes]] = [[] for _ in runners]
    losses = [0.0] * len(runners)
    for number in range(rounds + warm_up):
        if progress:
            progress("schedules in turns", number, rounds + warm_up)
        for at, runner in enumerate(runners):
            network.begin(number)
            times = runner.step()
            losses[at] = network.loss
            if number >= warm_up:
                steps[at].append(times)
    return steps, losses
