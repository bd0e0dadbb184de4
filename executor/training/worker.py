"""One rank at work: runs its tasks of the program, iteration by iteration."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.program.rank_parts import LayerUnit
from executor.program.recorder import RankMeasurement
from executor.runtime.run_options import RunOptions
from executor.supervision.status_board import RankState
from executor.training.backward_pass import BackwardPass
from executor.training.forward_pass import ForwardPass, LossCheck
from executor.training.parameter_updates import ParameterUpdates
from executor.training.rank_resources import RankLayers, RankResources, TaskTimer
from executor.training.rank_tensors import RankTensors
from executor.training.stand_in import wake_in_time
from executor.training.statistics_sync import StatisticsSync
from groundwork.errors import ConfigError
from planner.lowering.program import KINDS

_Run = Callable[[int, LayerUnit], None]


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """Loss and measurements of one rank in one training step."""

    loss: float
    """The rank's share of the loss: its samples' part of the mean over the batch."""
    measured: RankMeasurement


class Worker:
    """The training loop of one rank.

    Raises:
        ConfigError: A wait is to stand in for arithmetic on a GPU.
    """

    def __init__(self, resources: RankResources, layers: RankLayers, options: RunOptions) -> None:
        device = resources.device.torch_device
        if options.stand_in and device.type != "cpu":
            raise ConfigError(f"device must be cpu with stand_in: the host waits, got {device.type}")
        self._resources, self._layers, program = resources, layers, resources.view.program
        self._units = resources.units
        timer = TaskTimer(program, resources.recorder, resources.status, options)
        self._tensors = RankTensors(resources, layers, timer)
        self._statistics = StatisticsSync(resources)
        self._loss_check = LossCheck([layer.name for layer in program.graph.layers])
        self._updates = ParameterUpdates(resources, layers, timer)
        self._forward = ForwardPass(
            resources,
            layers,
            self._tensors,
            timer=timer,
            statistics=self._statistics,
            loss_check=self._loss_check,
            seed=options.seed,
        )
        self._backward = BackwardPass(
            resources, layers, self._tensors, timer=timer, statistics=self._statistics, updates=self._updates
        )
        self._order = [
            (task, int(program.group[task]), self._run_of(task), resources.view.parts.unit_of(task))
            for task in resources.view.tasks
        ]
        """Tasks, the groups before which they may send, how they are run, and their units: looked up once, since
        between two tasks of arithmetic a look-up costs ten times what it costs in a loop of its own."""
        self._tensors.clear()
        if options.stand_in:
            wake_in_time()

    def _run_of(self, task: int) -> _Run | None:
        """Return the method that runs a task; None for tasks of gradient synchronisation, which run when submitted."""
        program = self._resources.view.program
        if KINDS[program.kind[task]] == "decompress" and program.consumer[task] < 0:
            return None
        runs: dict[str, _Run] = {
            "forward": self._forward.run,
            "activation_gradient": self._backward.activation_gradient,
            "weight_gradient": self._backward.weight_gradient,
            "update": self._updates.run,
            "decompress": lambda task, _: self._tensors.decompress(task),
        }
        run = runs.get(KINDS[program.kind[task]])
        return self._with_parameters(run) if run and self._units.reads(task) else run

    def _with_parameters(self, run: _Run) -> _Run:
        """Return a method that runs tasks which read gathered parameters."""

        def work(task: int, unit: LayerUnit) -> None:
            """Wait for the parameters, run the task, and free what nothing else reads."""
            self._units.wait(task)
            run(task, unit)
            self._units.done(task)

        return work

    @torch.no_grad()
    def step(self, number: int) -> StepResult:
        """Run one training step.

        Args:
            number: Number of the step; with the seed it determines which data are read and what dropout drops.

        Raises:
            FloatingPointError: The loss is not finite; the message names the first layer seen to be at fault.
            TimeoutError: Another rank keeps this one waiting too long.
            RuntimeError: A connection broke, or memory ran out.
        """
        status, flush = self._resources.status, self._tensors.sender.flush
        self._forward.begin(number)
        self._loss_check.begin(number)
        for task, group, run, unit in self._order:
            flush(group)
            if run is not None:
                status.at(task, RankState.COMPUTING)
                run(task, unit)
        flush(None)
        status.at(-1, RankState.WAITING)
        self._resources.transport.end_iteration()
        self._resources.recorder.read()  # reads the step before, while the device works on this one
        self._resources.device.synchronize()
        held = self._resources.view.parts
        losses = {
            unit: part.loss
            for unit, part in self._layers.parts.items()
            if part.loss is not None and not held.is_copy(unit[0])
        }
        for (layer, _), value in losses.items():
            self._loss_check.check(layer, value)
        loss = sum(map(float, losses.values()))
        self._tensors.clear()
        self._backward.clear()
        self._loss_check.begin(number)
        return StepResult(loss=loss, measured=self._resources.recorder.finish())

    @torch.no_grad()
    def settle(self) -> None:
        """Do what would come with the next step.

        That is: read times, update where gradients are summed in a given order, and gather updated parameters.
        """
        self._resources.recorder.read()
        for task, _, run, unit in self._order:
            if run == self._updates.run:
                run(task, unit)
        self._units.settle()
        self._resources.status.at(-1, RankState.WAITING)

    def set_overlap(self, overlap: bool) -> None:
        """Choose whether messages travel beside arithmetic from the next step on; the same on all ranks."""
        self._tensors.sender.overlap = self._resources.gradient_sync.overlap = overlap

    def gradient_bytes(self) -> float:
        """Return the most bytes so far of the buffers in which gradients are summed over replicas."""
        return self._resources.gradient_sync.held_bytes

    def message_buffers(self) -> list[Tensor]:
        """Return the buffers in which messages arrive, which are allocated once; none on GPUs."""
        return self._resources.transport.buffers

    def close(self) -> None:
        """Settle, and end threads and connections; all ranks must call it together."""
        self.settle()
        self._resources.transport.close()
        self._resources.redistributor.close()
        self._units.close()
        self._resources.gradient_sync.close()
        self._statistics.close()
