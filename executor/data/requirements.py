"""The shapes and kinds of the data that a model requires."""

import math
from dataclasses import dataclass

from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph
from planner.graph.data_sources import DATA
from planner.operations.loss import Loss
from planner.operations.streaming import Embedding


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredInput:
    """Shape and kind of one input that a model requires."""

    array: str
    """Name of its array in files of several arrays."""
    sample: tuple[int, ...]
    """Channels and positions."""
    words: int = 0
    """Number of different whole numbers of which it is made, such as words; 0: it is made of values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRequirements:
    """Shapes and kind of the data that a model requires."""

    model: str
    batch: int
    inputs: dict[str, RequiredInput]
    """All inputs by their names in the model's graph, in order."""
    outputs: tuple[int, ...]
    """Sizes of the loss's input, for one sample."""
    labelled: bool
    """True if targets are labels; else they are values of the shape ``outputs``."""
    positions: tuple[int, ...] = ()
    """Sizes of the positions that have labels of their own; empty where a sample has one label."""

    @classmethod
    def of(cls, graph: ComputationGraph) -> "DataRequirements":
        """Return the shapes that a graph requires.

        Raises:
            ConfigError: The last layer of the graph is no loss.
        """
        last = graph.layers[-1]
        if not isinstance(last.operation, Loss):
            raise ConfigError(f"the last layer of {graph.name} must be a loss to be trained, got {last.operation.kind}")
        return cls(
            model=graph.name,
            batch=graph.batch,
            inputs={
                name: RequiredInput(
                    array=name.replace(DATA, "inputs").replace(":", "_"),
                    sample=shape.sizes[1:],
                    words=words_of(graph, name),
                )
                for name, shape in graph.data.items()
            },
            outputs=last.output.sizes[1:],
            labelled=last.operation.function != "mean_squared_error",
            positions=last.output.positions if last.operation.function == "softmax_per_position" else (),
        )

    def only_input(self, data: str) -> RequiredInput:
        """Return the input of a model that reads one.

        Raises:
            ConfigError: The model reads several.
        """
        if len(self.inputs) > 1:
            arrays = ", ".join(each.array for each in self.inputs.values())
            raise ConfigError(
                f"data {data} has one input, {self.model} reads {len(self.inputs)}: data must be generated, or an .npz "
                f"file with the arrays {arrays} and targets"
            )
        return next(iter(self.inputs.values()))

    @property
    def classes(self) -> int:
        """Number of classes of the labels."""
        return math.prod(self.outputs) // math.prod(self.positions)


def words_of(graph: ComputationGraph, name: str) -> int:
    """Return the number of rows of the smallest table that an input is looked up in; 0 where there is none."""
    readers = [layer for layer in graph.layers if name in layer.inputs and isinstance(layer.operation, Embedding)]
    return min((layer.parameters[0].shape[0] for layer in readers if layer.parameters), default=0)
