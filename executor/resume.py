"""What of a session goes into a checkpoint, and comes back under this plan or another of the same model."""

from pathlib import Path
from typing import Any

from executor.boxes import Box
from executor.checkpoint import Part, latest_step, load_checkpoint, model_identity, save_checkpoint
from executor.options import RunOptions
from executor.session import Session
from planner.graph import ComputationGraph

__all__ = ["Checkpoints"]


class Checkpoints:
    """The checkpoints of a run.

    Args:
        options: The folder, and what a checkpoint must have been saved with: the kind of optimizer.
        graph: The model, or a graph of it in which layers are partial sums; another batch is no hindrance.
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
        """Steps behind the newest checkpoint.

        Raises:
            ConfigError: There is none, or it is of another model or optimizer.
        """
        return latest_step(self._folder, self._identity)

    def save(self, session: Session, step: int) -> None:
        """Save parameters, optimizer state and running statistics; all ranks call it together.

        Raises:
            ConfigError: It cannot be written.
            FloatingPointError: A number is not finite, so that nobody could go on from it.
        """
        tensors = _tensors(session)
        for name, part in tensors.items():
            if not bool(part.tensor.isfinite().all()):
                raise FloatingPointError(f"{name} is not finite after {step} steps, which is not saved")
        save_checkpoint(self._folder, step=step, identity={**self._identity, **self._about}, tensors=tensors)

    def load(self, session: Session) -> None:
        """Take up the newest checkpoint; all ranks call it together.

        Raises:
            ConfigError: It is damaged, or of another model or optimizer.
        """
        found = load_checkpoint(self._folder, self._identity, _tensors(session))
        cut = session.view.program.cut
        for layer, optimizer in session.optimizers.items():
            optimizer.resume(found.step * (cut.of(layer) if cut.update_each else 1))


def _tensors(session: Session) -> dict[str, Part]:
    """By name, what a rank holds."""
    tensors: dict[str, Part] = {}
    for i, boxes in session.boxes.items():
        layer = session.view.program.graph.model_layer(i)
        shapes = {parameter.name: parameter.shape for parameter in layer.parameters}
        for place, (name, box) in enumerate(boxes.items()):
            key = f"{layer.name}.{name}"
            tensors[key] = Part(box, shapes[name], session.parameters[i][name])
            for state, values in session.optimizers[i].state.items():
                tensors[f"{key}.{state}"] = Part(box, shapes[name], values[place])
        held = session.view.held(i)
        for name, buffer in session.parts[i].buffers.items():
            channels = Box((held.low[1],), (held.high[1],))
            tensors[f"{layer.name}.{name}"] = Part(channels, (layer.output.size("channel"),), buffer)
    return tensors
