"""The ``state_dict`` of an imported module: the file that training starts from, and the tensors that it must hold."""

import importlib
import importlib.util
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from groundwork.errors import ConfigError, first_line
from groundwork.input_files import check_input
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.operations.mapped import Mapped
from planner.operations.normalisation import BatchNorm

RUNNING = ("running_mean", "running_var")
"""Names of the running statistics of a batch normalisation, in a part and in a module."""
_STATE_MIB = 64 * 1024


def read_module_state(path: Path) -> dict[str, Tensor]:
    """Read what ``torch.save(module.state_dict(), path)`` wrote, or a ``.safetensors`` file; no code of it runs.

    Returns:
        Tensors by key, mapped into memory: only what is read of them is loaded.

    Raises:
        ConfigError: The file cannot be read or holds something else.
    """
    check_input(path, "init", limit_mib=_STATE_MIB)
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    try:
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("its entries are compressed, which torch.save does not do")
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a damaged file raises a dozen kinds
        raise ConfigError(f"init {path} must be a state_dict that torch.save wrote: {first_line(error)}") from error
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise ConfigError(f"init {path} must be a mapping of keys to tensors, got {type(state).__name__}")
    wrong = next((key for key, each in state.items() if not _is_plain(each)), None)
    if wrong is not None:
        raise ConfigError(
            f"init {path} must hold dense tensors only, got {type(state[wrong]).__name__} for {wrong[:80]!r}; save "
            f"module.state_dict() alone"
        )
    return dict(state)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    """Read a file of tensors alone, with the library of that format."""
    if importlib.util.find_spec("safetensors") is None:
        raise ConfigError(
            f"init {path} needs the package safetensors, which is not installed: pip install safetensors, or give what "
            f"torch.save wrote"
        )
    library = importlib.import_module(
        "safetensors.torch"
    )  # imported by name, so that checks of types do without the package
    try:
        state: dict[str, Tensor] = library.load_file(path)
    except Exception as error:  # a damaged header raises half a dozen kinds
        raise ConfigError(f"init {path} must be a safetensors file: {first_line(error)}") from error
    return state


def _is_plain(value: object) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided and not value.is_quantized


def check_keys(graph: ComputationGraph, option: str) -> None:
    """Check that every parameter of a model is known by its key in a ``state_dict``.

    Raises:
        ConfigError: The model was not imported; the message names the first parameter without a key.
    """
    for layer in graph.layers:
        for parameter in layer.parameters:
            if parameter.name not in dict(layer.keys):
                raise ConfigError(
                    f"{option} needs a model that was imported: parameter {parameter.name} of layer {layer.name} of "
                    f"{graph.name} has no key in a state_dict"
                )


def check_module_state(path: Path, graph: ComputationGraph) -> None:
    """Check that a file holds all parameters and buffers of a model, with its sizes.

    Raises:
        ConfigError: It does not; the message names the key.
    """
    state = with_tied(read_module_state(path), graph)
    for layer in graph.layers:
        keys = dict(layer.keys)
        for name, other in layer.aliases:
            one, two = (state.get(key) for key in (keys[name], other))
            if one is not None and two is not None and not _equal(one, two):
                raise ConfigError(
                    f"init {path}: {keys[name]} and {other} must be equal, for {graph.name} has one parameter for both"
                )
    for key, shape in _wanted(graph):
        if key not in state:
            raise ConfigError(f"init {path} must hold {key}, which {graph.name} trains or reads")
        if tuple(state[key].shape) != shape:
            raise ConfigError(f"init {path}: {key} must have sizes {list(shape)}, got {list(state[key].shape)}")


def with_tied(state: Mapping[str, Tensor], graph: ComputationGraph) -> dict[str, Tensor]:
    """Return a state with tied parameters under their first key, where it has one of the others only.

    Files of tensors without storages in common, such as ``.safetensors``, keep one key of such a parameter.
    """
    found = dict(state)
    for layer in graph.layers:
        keys = dict(layer.keys)
        for name, other in layer.aliases:
            if other in state:
                found.setdefault(keys[name], state[other])
    return found


def _equal(one: Tensor, two: Tensor) -> bool:
    """Return whether two tensors hold the same; those of one storage are not read."""
    same = one.data_ptr() == two.data_ptr() and one.stride() == two.stride() and one.dtype == two.dtype
    return one.shape == two.shape and (same or torch.equal(one, two))


def _wanted(graph: ComputationGraph) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield keys and sizes of the tensors that a model is computed with."""
    for layer in graph.layers:
        keys = dict(layer.keys)
        yield from ((keys[parameter.name], parameter.module_shape) for parameter in layer.parameters)
        yield from buffer_keys(layer).items()


def buffer_keys(layer: Layer) -> Mapping[str, tuple[int, ...]]:
    """Return the buffers of the module that a layer computes with, by key, with their sizes."""
    steps = layer.operation.computes if isinstance(layer.operation, Mapped) else ()
    constants = [operand.constant for step in steps for operand in step.operands if operand.constant]
    return {leaf.buffer: leaf.shape for each in constants for leaf in each.leaves() if leaf.buffer}


def norm_prefix(layer: Layer) -> str:
    """Return what the keys of a layer's running statistics begin with; empty where that is not known."""
    if isinstance(layer.operation, BatchNorm) and not layer.operation.affine:
        return f"{layer.name}."  # without parameters the layer is named by its module's path
    keys = dict(layer.keys)
    key = keys.get("norm_weight", keys.get("weight", ""))
    return key.removesuffix("weight") if key.endswith(".weight") else ""
