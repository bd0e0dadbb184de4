"""Times of the parts that one rank holds of a plan, taken some at a time between the plan's turns."""

from dataclasses import replace

from executor.devices import Device
from executor.optimizer_spec import OptimizerSpec
from executor.probe import LayerProbe, ProbeRow, parts_of
from executor.probe.parts import tensor_bytes
from executor.status import RankState, RankStatus
from planner.program import Program

__all__ = ["PartSamples"]


class PartSamples:
    """Samples of one rank's parts of one plan.

    A rank that a plan leaves idle has none: it is so for the others' samples, too.

    Args:
        program: The plan's.
        rank: Whose parts.
        device: Where it computes.
        status: Where it says that it does.
        optimizer: Whose update is measured.
    """

    def __init__(
        self, program: Program, rank: int, device: Device, status: RankStatus, optimizer: OptimizerSpec
    ) -> None:
        self._graph, self._device, self._status = program.graph, device, status
        self._optimizer = replace(optimizer, learning_rate=1e-12)
        mine = [set(space.devices.ravel().tolist()) for space in program.spaces]
        self._parts = [
            part
            for part in parts_of(self._graph, [program.spaces])
            if any(rank in mine[self._graph.index[name]] for name in part.layers)
        ]
        self._probe: LayerProbe | None = None
        self._rows: list[ProbeRow] = []

    @property
    def tensor_bytes(self) -> float:
        """Roughly what the tensors of all parts take."""
        return sum(tensor_bytes(self._graph, part) for part in self._parts)

    def prepare(self) -> None:
        """Make the tensors and run every part once, unmeasured, unless that is done."""
        if self._probe is None:
            self._probe = LayerProbe(
                self._graph, self._parts, self._device, optimizer=self._optimizer, watch=self._computing
            )
            self._probe.warm_up(self._computing)

    def sample(self) -> None:
        """Time every part once more; after ``prepare``."""
        assert self._probe is not None
        self._probe.sample(self._computing)

    def drop(self) -> None:
        """Let go of the tensors, and keep the times."""
        if self._probe is not None:
            self._rows += self._probe.rows()
            self._probe = None

    def rows(self) -> list[ProbeRow]:
        """All times so far; the tensors are dropped."""
        self.drop()
        return self._rows

    def _computing(self, _part: int) -> None:
        self._status.at(-1, RankState.COMPUTING)
