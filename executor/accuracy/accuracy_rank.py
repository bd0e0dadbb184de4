"""One process of a study: ``python -m executor.accuracy.accuracy_rank JOB`` with its rank in the environment.

Processes start once and train every case with every seed, one after another.
"""

import time
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from executor.accuracy.accuracy_request import AccuracyCase
from executor.accuracy.accuracy_result import Training
from executor.accuracy.accuracy_run import AccuracyJob
from executor.data.load import load_data
from executor.layers.base import PartLayer, TrainingStep
from executor.layers.factory import part_layer
from executor.rendezvous.rank_environment import RankEnvironment
from executor.runtime.boxes import Box, whole_box
from executor.runtime.devices import ComputeDevice, device_of
from executor.runtime.run_options import RunOptions
from executor.supervision.launcher import threads_of
from executor.supervision.rank_work import process_group, serve_job
from executor.supervision.status_board import RankState, RankStatus
from executor.training.session import Session, open_session
from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.operations.dropout import Dropout
from planner.operations.linear import Linear
from planner.strategies.named_strategies import named_strategy, spaces_of

Parameters = dict[int, dict[str, Tensor]]


def whole_parameters(session: Session) -> Parameters | None:
    """Return the parameters by layer and name, put together from the shards of all ranks; all ranks call it together.

    Returns:
        The parameters on rank 0; elsewhere None.
    """
    mine = [(i, each.name, each.box, each.tensor.cpu()) for i in session.boxes for each in session.slices(i)]
    rows: list[list[tuple[int, str, Box, Tensor]]] | None = None
    if dist.get_rank() == 0:
        rows = [mine] * dist.get_world_size()
    dist.gather_object(mine, rows)
    if rows is None:
        return None
    whole: Parameters = {}
    for i, layer in enumerate(session.view.program.graph.layers):
        for parameter in layer.parameters:
            whole.setdefault(i, {})[parameter.name] = torch.empty(parameter.shape)
    for i, name, box, shard in (slice_ for row in rows for slice_ in row):
        whole[i][name][tuple(map(slice, box.low, box.high))] = shard
    for way, shared in session.view.program.graph.shared.items():
        whole[way.consumer][shared.borrowed] = whole[way.producer][shared.name]
    return whole


class HeldOut:
    """Samples held out, and the undivided network: the parts of a plan for one device, without dropout."""

    def __init__(self, graph: ComputationGraph, data: str) -> None:
        """Load the samples."""
        layers = [_layer_without_dropout(layer) for layer in graph.layers]
        graph = ComputationGraph(graph.name, graph.batch, layers, element_bytes=graph.element_bytes)
        self._graph = graph
        spaces = spaces_of(graph, named_strategy("data", graph, 1), 1)
        self._parts: list[PartLayer] = [
            part_layer(graph, i, space, 0, dtype=torch.float32, device="cpu") for i, space in enumerate(spaces)
        ]
        source = load_data(data, graph, seed=0, dtype=torch.float32, device="cpu")
        self._inputs = {name: source.inputs(0, whole_box(shape.sizes), name) for name, shape in graph.data.items()}
        self._labels = source.targets(0, 0, graph.batch)

    @torch.no_grad()
    def accuracy(self, parameters: Parameters) -> float:
        """Return the share of the samples for whose class the network computes the highest probability."""
        step = TrainingStep(0, 0, self._labels)
        outputs = dict(self._inputs)
        for i, (layer, part) in enumerate(zip(self._graph.layers, self._parts, strict=True)):
            inputs = [outputs[source] for source in layer.inputs]
            outputs[layer.name] = part.forward(inputs, parameters.get(i, {}), step)
            part.release()
        classes = outputs[self._graph.layers[-1].name].flatten(1).argmax(1)
        return float((classes == self._labels).double().mean())


def _layer_without_dropout(layer: Layer) -> Layer:
    match layer.operation:
        case Linear() | Dropout() as operation if operation.dropout:
            return replace(layer, operation=replace(operation, dropout=0.0))
    return layer


class _Trainer:
    """Trainings of one rank, one after another."""

    def __init__(self, job: AccuracyJob, where: RankEnvironment, device: ComputeDevice, status: RankStatus) -> None:
        self._job, self._where, self._device, self._status = job, where, device, status
        self._held_out = HeldOut(job.held_out, job.testing_file) if where.rank == 0 else None
        self._steps = 0

    def train(self, case: AccuracyCase, seed: int) -> Training | None:
        """Train once; return the losses and accuracies on rank 0, elsewhere None.

        Raises:
            FloatingPointError: The training diverged; the message says which.
        """
        try:
            return self._train(case, seed)
        except (ConfigError, FloatingPointError) as error:  # codecs and losses refuse values that are not finite
            raise FloatingPointError(
                f"training with {case.type}, {case.mode} parallel, seed {seed}: {error}"
            ) from error

    def _train(self, case: AccuracyCase, seed: int) -> Training | None:
        job, per_epoch = self._job, self._job.steps_per_epoch
        steps = job.request.epochs * per_epoch
        options = RunOptions(
            plan="", steps=steps, seed=seed, data=job.training_file, optimizer=job.request.optimizer_spec, device="cpu"
        )
        session = open_session(
            job.programs[case],
            self._where.rank,
            options,
            reduced=False,
            device=self._device,
            status=self._status,
            steps=steps,
        )
        shares, accuracies, begin = torch.zeros(steps, dtype=torch.float64), [], time.perf_counter()
        for number in range(steps):
            shares[number] = session.worker.step(number).loss
            self._steps += 1
            self._status.step(self._steps, float(shares[number]), job.request.batch / (time.perf_counter() - begin))
            if (number + 1) % per_epoch == 0:
                self._status.at(-1, RankState.WAITING)
                parameters = whole_parameters(session)
                accuracies.append(self._held_out.accuracy(parameters) if self._held_out and parameters else 0.0)
            begin = time.perf_counter()
        session.worker.close()
        dist.all_reduce(shares)
        if self._held_out is None:
            return None
        losses = shares.view(job.request.epochs, per_epoch).mean(1).tolist()
        return Training(mode=case.mode, type=case.type, seed=seed, losses=losses, accuracies=accuracies)


def _work(job: AccuracyJob, where: RankEnvironment, status: RankStatus) -> list[Training | None] | None:
    """Train every case with every seed; return the trainings on rank 0, elsewhere None."""
    torch.set_num_threads(threads_of(0, where.ranks))
    device = device_of("cpu", 0)
    with process_group(where, device):
        trainer = _Trainer(job, where, device, status)
        trainings = [trainer.train(case, seed) for seed in range(job.request.seeds) for case in job.programs]
    return trainings if where.rank == 0 else None


if __name__ == "__main__":
    serve_job(_work)
