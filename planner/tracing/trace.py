"""An exported program as plain data: its nodes with named arguments and the shapes of what they make."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

from groundwork.errors import ConfigError

_MOST_ELEMENTS = 2**53
"""Most elements of a tensor: a float counts them exactly."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument that is the result of another node, or an input of the program."""

    name: str


@dataclass(frozen=True, slots=True)
class TraceTensor:
    """Sizes and type of a tensor.

    Raises:
        ConfigError: A size is no whole number, or the tensor has too many elements.
    """

    shape: tuple[int, ...]
    floating: bool = True
    """False for integers and truth values, which have no gradients."""

    def __post_init__(self) -> None:
        sizes = list(self.shape)
        if any(not isinstance(size, int) or isinstance(size, bool) or size < 0 for size in sizes):
            raise ConfigError(f"sizes must be whole numbers >= 0, got {sizes}")
        if prod(sizes) > _MOST_ELEMENTS:
            raise ConfigError(f"sizes must be of at most {_MOST_ELEMENTS:,} elements, got {sizes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceNode:
    """One operation."""

    name: str
    """Name of its result, or of the list of its results."""
    operation: str
    """Name without namespace and overload, such as ``conv2d``."""
    arguments: Mapping[str, Any]
    """By name; tensors are ``Argument`` or lists of them."""
    results: tuple[TraceTensor, ...]
    """Tensors that it makes; empty for operations that make none."""
    several: bool = False
    """True if the results are a list, of which other nodes take items."""
    module: str = ""
    """Path of the module that computes it."""
    pointwise: bool = False
    """True if PyTorch says that the operation works element by element."""
    line: str = ""
    """File and line of the model's code."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A program: its inputs, in order, its nodes, in order, and what it returns."""

    inputs: Mapping[str, TraceTensor]
    """Data, by the name of the argument."""
    parameters: Mapping[str, tuple[str, TraceTensor]]
    """Trained tensors: name of the argument to the key of the ``state_dict``; tied ones have the same key."""
    constants: Mapping[str, TraceTensor] = field(default_factory=dict)
    """Buffers and constants."""
    buffers: Mapping[str, str] = field(default_factory=dict)
    """Keys of buffers in the ``state_dict``, by the name of the argument, of those that it holds."""
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Elements of small buffers that the ``state_dict`` does not hold, by the name of the argument."""
    nodes: tuple[TraceNode, ...]
    outputs: tuple[str, ...]
    """Names of the tensors that it returns."""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further keys of tied parameters in the ``state_dict``, by the key that stands for all of them."""
    frozen: frozenset[str] = frozenset()
    """Keys of the parameters that the module does not train."""
    training: bool = False
    """True if it was traced while its module was in training mode; False if it was not, or that is not known."""
    samples: int = 0
    """Samples of the graph, where it was traced with more of them; 0: as many as it was traced with."""
    foreign: bool = False
    """True if it was translated: arguments are not all PyTorch's, so layers do not record what they compute."""

    @cached_property
    def trains(self) -> bool:
        """True if the module was in training mode, or some of its normalisations were."""
        return self.training or any(node.arguments.get("training") is True for node in self.nodes)

    @cached_property
    def parameter_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Sizes of all parameters by their key."""
        return {key: tensor.shape for key, tensor in self.parameters.values()}
