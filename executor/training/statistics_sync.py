"""Batch-normalisation statistics summed over the parts of the same channels."""

from executor.communication.reduction import Reducer
from executor.layers.base import PartLayer
from executor.program.buckets import Reduction, reductions_of
from executor.program.rank_parts import LayerUnit
from executor.supervision.status_board import RankState
from executor.training.rank_resources import RankResources


class StatisticsSync:
    """Sums statistics between the two halves of a normalisation's forward and backward pass.

    Args:
        resources: Tasks and messages of the rank.  All ranks must make their ``StatisticsSync`` together.
    """

    def __init__(self, resources: RankResources) -> None:
        view = resources.view
        self._recorder, self._status, self._dtype = resources.recorder, resources.status, resources.dtype
        self._reducer = Reducer(view, resources.recorder, statistics=True)
        self._reductions: dict[tuple[LayerUnit, bool], Reduction] = {
            (view.parts.unit_of(row.tasks[0]), bool(view.program.backward[row.tasks[0]])): row
            for row in reductions_of(view, statistics=True)
        }

    def sum(self, unit: LayerUnit, part: PartLayer, *, backward: bool) -> None:
        """Sum the statistics of a unit's part in place; does nothing where the rank holds all of the channels."""
        reduction = self._reductions.get((unit, backward))
        if reduction is None:
            return
        assert part.statistics is not None
        self._status.at(reduction.tasks[0], RankState.WAITING)
        content = part.statistics.to(self._dtype).reshape(-1)
        if reduction.native:
            self._recorder.start(reduction.tasks[0])
        self._reducer.sum(reduction, content)
        if reduction.native:
            self._recorder.end(reduction.tasks[0])
        part.statistics.copy_(content.view_as(part.statistics))

    def close(self) -> None:
        """Close the connections; all ranks must call it together."""
        self._reducer.close()
