"""State of a session in a checkpoint, to be loaded under the same plan or another one of the same model.

Where gradients are compressed by a type with feedback, every replica keeps a residual of its own.  Under the same plan
each replica loads its own.  The residuals of all replicas add up to what the sums so far lack: where there are more or
fewer replicas than before, they share that sum equally, so that nothing is lost.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from executor.checkpoints.checkpoint import (
    CheckpointPart,
    latest_step,
    load_checkpoint,
    model_identity,
    save_checkpoint,
    saved_sizes,
)
from executor.runtime.boxes import Box
from executor.runtime.run_options import RunOptions
from executor.training.session import Session
from planner.graph.computation_graph import ComputationGraph

_RESIDUAL = ".residual"


class Checkpoints:
    """The checkpoints of a run.

    Args:
        options: Options with the folder, and with the optimizer that a checkpoint must have been saved with.
        graph: The model, or a graph of it in which layers are partial sums; its batch may change between runs.
    """

    def __init__(self, options: RunOptions, graph: ComputationGraph) -> None:
        self._folder = Path(options.checkpoint)
        self._identity: dict[str, Any] = {
            "model": model_identity(graph),
            "element_bytes": graph.element_bytes,
            "optimizer": options.optimizer.name,
        }
        self._about = {"model_name": graph.name, "batch": graph.batch, "seed": options.seed}

    def latest_step(self) -> int:
        """Return the training steps before the newest checkpoint.

        Raises:
            ConfigError: There is no checkpoint, or it is of another model or optimizer.
        """
        return latest_step(self._folder, self._identity)

    def save(self, session: Session, step: int) -> None:
        """Save parameters, optimizer state, running statistics and residuals; all ranks call it together.

        Raises:
            ConfigError: The checkpoint cannot be written.
            FloatingPointError: An element is not finite, so that no run could continue from the checkpoint.
        """
        tensors = {**_tensors(session), **_residuals(session)}
        for name, part in tensors.items():
            if not bool(part.tensor.isfinite().all()):
                raise FloatingPointError(f"{name} is not finite after {step} steps, which is not saved")
        identity = {**self._identity, **self._about, "data_types": _kept_types(session)}
        save_checkpoint(self._folder, step=step, identity=identity, tensors=tensors)

    def load(self, session: Session) -> tuple[str, ...]:
        """Load the newest checkpoint; all ranks call it together.

        Returns:
            Notes on state that is not restored, as far as this rank knows: residuals that begin at zero, or that no
            replica loads.

        Raises:
            ConfigError: The checkpoint is damaged, or of another model or optimizer, or this run keeps other types.
        """
        saved = saved_sizes(self._folder, self._identity)
        mine = _residuals(session)
        known = {name: _of_replicas(part, saved[name]) for name, part in mine.items() if name in saved}
        wanted = {**_tensors(session), **known}
        types = session.view.program.types
        identity = dict(self._identity)
        if types.master or not types.parameter == types.state == types.activation:  # others may have kept less
            identity["data_types"] = _kept_types(session)
        checkpoint = load_checkpoint(self._folder, identity, wanted)
        for name, part in known.items():
            if part.tensor is not mine[name].tensor:
                mine[name].tensor.copy_(part.tensor.sum(dim=0, keepdim=True) / mine[name].whole[0])
        micro_batching = session.view.program.micro_batching
        for layer, optimizer in session.optimizers.items():
            optimizer.resume(checkpoint.step * (micro_batching.of(layer) if micro_batching.update_each else 1))
        return tuple(_notes(session, mine, saved))


def _kept_types(session: Session) -> str:
    """Return the types in which a run keeps parameters, master weights and state."""
    types = session.view.program.types
    return f"{types.parameter}, {types.master or 'no'} master weights, state in {types.state}"


def _residuals(session: Session) -> dict[str, CheckpointPart]:
    """Return this replica's residuals by name: its row of a tensor with one row for each replica."""
    tensors: dict[str, CheckpointPart] = {}
    for i, residual in session.gradient_sync.residuals().items():
        layer = session.view.program.graph.layers[i]
        for parameter in layer.parameters:
            if not parameter.elements:
                continue
            box, row = session.boxes[i][parameter.name], residual.replica
            tensors[f"{layer.name}.{parameter.name}{_RESIDUAL}"] = CheckpointPart(
                Box((row, *box.low), (row + 1, *box.high)),
                (residual.replicas, *parameter.shape),
                residual.tensors[parameter.name][None],
            )
    return tensors


def _of_replicas(part: CheckpointPart, saved_sizes: tuple[int, ...]) -> CheckpointPart:
    """Return the residual itself where the number of replicas is the same; else a buffer for those of all replicas."""
    replicas = saved_sizes[0] if saved_sizes[1:] == part.whole[1:] else 0
    # No buffer for residuals of another shape, which the load refuses.
    if replicas in (0, part.whole[0]):
        return part
    box = Box((0, *part.box.low[1:]), (replicas, *part.box.high[1:]))
    return CheckpointPart(box, (replicas, *part.whole[1:]), part.tensor.new_empty(box.shape))


def _notes(session: Session, mine: Collection[str], saved: Collection[str]) -> Iterator[str]:
    """Yield the notes of ``Checkpoints.load``."""
    graph = session.view.program.graph
    held = {graph.layers[i].name for i in session.boxes}
    new = {_layer_of(name) for name in mine if name not in saved}
    lost = {_layer_of(name) for name in saved if name.endswith(_RESIDUAL) and name not in mine} & held
    if new:
        yield f"residuals of {', '.join(sorted(new))} begin at zero: the checkpoint holds none"
    if lost:
        yield f"residuals of {', '.join(sorted(lost))} in the checkpoint are left out: this plan keeps none there"


def _layer_of(residual: str) -> str:
    return residual.removesuffix(_RESIDUAL).rpartition(".")[0]


def _tensors(session: Session) -> dict[str, CheckpointPart]:
    """Return the boxes of parameters, optimizer state and running statistics that a rank holds, by name."""
    tensors: dict[str, CheckpointPart] = {}
    for i in session.boxes:
        layer = session.view.program.graph.layers[i]
        shapes = {parameter.name: parameter.shape for parameter in layer.parameters}
        held = sorted((*session.slices(i), *session.state_slices(i)), key=lambda each: each.label)
        for label, group in groupby(held, key=lambda each: each.label):
            first, *others = (CheckpointPart(each.box, shapes[each.name], each.tensor) for each in group)
            tensors[f"{layer.name}.{label}"] = replace(first, others=tuple(others))
        part = session.view.parts.held(i)
        for name, buffer in session.parts[i].buffers.items():
            channels = Box((part.low[1],), (part.high[1],))
            tensors[f"{layer.name}.{name}"] = CheckpointPart(channels, (layer.output.size("channel"),), buffer)
    return tensors
