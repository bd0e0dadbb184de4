"""Statistics that parts of a layer share: sums of normalisations, and what parts of the channels have of rows."""

from collections import defaultdict
from itertools import groupby

import torch
import torch.distributed as dist
from torch import Tensor

from executor.communication.group_exchange import GroupExchange
from executor.communication.reduction import Reducer
from executor.layers.base import PartLayer
from executor.program.buckets import Reduction, reductions_of
from executor.program.rank_parts import LayerUnit
from executor.supervision.status_board import RankState
from executor.training.rank_resources import RankResources


class StatisticsSync:
    """Shares statistics between the two halves of a layer's forward or backward pass.

    Args:
        resources: Tasks and messages of the rank.  All ranks must make their ``StatisticsSync`` together.
    """

    def __init__(self, resources: RankResources) -> None:
        view = resources.view
        self._rank, self._collectives = view.rank, view.program.collectives
        self._recorder, self._status, self._dtype = resources.recorder, resources.status, resources.dtype
        self._reducer = Reducer(view, resources.recorder, statistics=True)
        self._reductions: dict[tuple[LayerUnit, bool], Reduction] = {
            (view.parts.unit_of(row.tasks[0]), bool(view.program.backward[row.tasks[0]])): row
            for row in reductions_of(view, statistics=True)
        }
        gathers = {
            task: each
            for task, each in self._collectives.items()
            if view.program.statistics[task] and each.kind == "all-gather"
        }
        self._gathers: dict[LayerUnit, list[int]] = defaultdict(list)
        for task in filter(gathers.__contains__, view.tasks):
            self._gathers[view.parts.unit_of(task)].append(task)
        groups = (each.devices for each in gathers.values())
        self._exchange = GroupExchange(view, resources.device, resources.recorder, "row statistics", groups)

    def share(self, unit: LayerUnit, part: PartLayer, *, backward: bool) -> None:
        """Sum or gather the statistics of a unit's part; does nothing where the rank has all that they are of."""
        if (unit, backward) in self._reductions:
            self._sum(self._reductions[unit, backward], part)
        elif not backward and unit in self._gathers:
            self._gather(self._gathers[unit], part)

    def _sum(self, reduction: Reduction, part: PartLayer) -> None:
        """Sum statistics in place."""
        assert part.statistics is not None
        self._status.at(reduction.tasks[0], RankState.WAITING)
        content = part.statistics.to(self._dtype).reshape(-1)
        if reduction.native:
            self._recorder.start(reduction.tasks[0])
        self._reducer.sum(reduction, content)
        if reduction.native:
            self._recorder.end(reduction.tasks[0])
        part.statistics.copy_(content.view_as(part.statistics))

    def _gather(self, tasks: list[int], part: PartLayer) -> None:
        """Replace statistics by those of all parts of the rows, one after another along the first dimension."""
        assert part.statistics is not None
        values: Tensor = part.statistics
        for devices, group in groupby(tasks, key=lambda task: self._collectives[task].devices):
            rounds = list(group)
            self._status.at(rounds[0], RankState.WAITING)
            parts = list(values.new_empty((len(devices), *values.shape)))
            own = devices.index(self._rank)
            parts[own].copy_(values)
            for task in rounds:
                self._recorder.start(task)
            if self._exchange.native:
                dist.all_gather(parts, values, group=self._exchange.native[devices])
            else:
                self._exchange.exchange(devices, rounds, [values] * len(parts), parts)
            for task in rounds:
                self._recorder.end(task)
            values = torch.cat(parts)
        part.statistics = values

    def close(self) -> None:
        """Close the connections; all ranks must call it together."""
        self._reducer.close()
        self._exchange.close()
