"""Objects that the passes of a training step share: a rank's layers, and the means by which it runs and sends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.communication.gradient_sync import GradientSync
from executor.communication.redistributor import Redistributor
from executor.communication.transport import Transport
from executor.data.dataset import Dataset
from executor.layers.base import PartLayer
from executor.program.rank_parts import LayerUnit
from executor.program.rank_program import RankProgram
from executor.program.recorder import Recorder
from executor.runtime.devices import ComputeDevice, torch_type
from executor.runtime.optimizers import Optimizer
from executor.runtime.run_options import RunOptions
from executor.supervision.status_board import RankState, RankStatus
from executor.training.unit_parameters import UnitParameters
from planner.lowering.program import Program


class TaskTimer:
    """Runs tasks, records their start and end, and reports them to the status board."""

    def __init__(self, program: Program, recorder: Recorder, status: RankStatus, options: RunOptions) -> None:
        self._program, self._recorder, self._status = program, recorder, status
        self.options = options

    def arithmetic(self, task: int, work: Callable[[], None]) -> None:
        """Run a task of a layer's forward pass, backward pass or update."""
        self._run(task, work, waits=self.options.stand_in)

    def compression(self, task: int, work: Callable[[], None]) -> None:
        """Run a task that compresses or decompresses messages."""
        self._run(task, work, waits=self.options.stand_in_compression)

    def _run(self, task: int, work: Callable[[], None], *, waits: bool) -> None:
        self._status.at(task, RankState.COMPUTING)
        self._recorder.timed(task, work, least_s=float(self._program.work_s[task]) if waits else 0.0)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RankLayers:
    """The parts of layers that a rank trains, and the data that it trains them with."""

    parts: Mapping[LayerUnit, PartLayer]
    parameters: Mapping[int, Mapping[str, Tensor]]
    """The slices that the rank holds, by layer and name; updated in place."""
    optimizers: Mapping[int, Optimizer]
    """Optimizer of each layer; it takes gradients in the order of the layer's parameters."""
    data: Dataset


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RankResources:
    """The device of a rank, its tasks and messages, and the objects that carry and record them."""

    view: RankProgram
    device: ComputeDevice
    transport: Transport
    redistributor: Redistributor
    units: UnitParameters
    gradient_sync: GradientSync
    recorder: Recorder
    status: RankStatus

    @property
    def dtype(self) -> torch.dtype:
        """Type of the elements of activations and gradients."""
        return torch_type(self.view.program.types.activation)
