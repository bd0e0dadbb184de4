"""Refusal of data and devices that cannot be used, before any rank starts.

The rules are those of ``executor.data`` and ``executor.runtime``, which need torch, whose import takes seconds.  A
quick look comes first, which needs none: only what looks wrong is checked by the rules, so good runs start no later.
"""

import ctypes
import importlib.metadata
import importlib.util
import math
import re
import zipfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from executor.runtime.run_options import RunOptions
from groundwork.errors import ConfigError
from groundwork.input_arrays import ARRAYS_MIB
from groundwork.input_files import check_input
from planner.graph.computation_graph import ComputationGraph
from planner.operations.loss import Loss
from planner.operations.mapped import Mapped
from planner.operations.streaming import Embedding


class _Array(NamedTuple):
    """What is known of an array in a file without its elements."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    elements: Callable[[], NDArray[Any]]
    """Reads it."""


def check_inputs(options: RunOptions, graph: ComputationGraph, processes: int) -> None:
    """Check what the ranks will open: their data, and a GPU for each where the device is ``cuda``.

    Raises:
        ConfigError: The data or the state to start from cannot be read or do not fit the model, or a GPU is missing.
    """
    if options.device == "cuda" and _gpus() < processes:
        from executor.runtime.devices import device_of

        for rank in range(processes):
            device_of(options.device, rank, local_ranks=processes)
    if not options.stand_in and not options.init:
        _check_buffers(graph)
    if options.init or options.save:
        from executor.runtime.module_state import check_keys, check_module_state

        check_keys(graph, "init" if options.init else "save")
        if options.init:
            check_module_state(Path(options.init), graph)
    if not options.stand_in and not _looks_right(options.data, graph):
        from executor.data.load import load_data
        from executor.runtime.devices import torch_type
        from planner.graph.type_roles import types_of

        load_data(
            options.data,
            graph,
            seed=options.seed,
            dtype=torch_type(types_of(graph.element_bytes).activation),
            device="cpu",
        )


def _check_buffers(graph: ComputationGraph) -> None:
    """Refuse imported layers that compute with buffers of the module, which only its state has."""
    for layer in graph.layers:
        for step in layer.operation.computes if isinstance(layer.operation, Mapped) else ():
            for operand in step.operands:
                for leaf in operand.constant.leaves() if operand.constant else ():
                    if leaf.buffer:
                        raise ConfigError(
                            f"operation {step.call} of layer {layer.name} reads buffer {leaf.buffer} of the module: "
                            f"init must give its state_dict"
                        )


def _gpus() -> int:
    """Return the number of GPUs that the driver has for this process and that the installed torch can use."""
    if importlib.metadata.version("torch").endswith("+cpu"):
        return 0
    count = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def _looks_right(data: str, graph: ComputationGraph) -> bool:
    """Return False where the data may not fit the model; their elements are not read, but for labels."""
    if data == "generated":
        return True
    if count := re.fullmatch(r"generated:(\d{1,8})", data):
        return int(count[1]) >= graph.batch
    try:
        if (folder := Path(data)).is_dir():
            # A folder needs the images of a batch, in no more folders than the model has classes.
            if importlib.util.find_spec("PIL") is None:
                return False
            classes = sum(entry.is_dir() for entry in folder.iterdir())
            files = (path for path in folder.glob("*/**/*") if path.suffix)
            fits = len(graph.data) == 1 and len(_sample(graph)) == 3 and _labelled(graph)
            return fits and classes <= _classes(graph) and len(list(islice(files, graph.batch))) == graph.batch
        return _arrays_look_right(*_arrays(data), graph)
    except Exception:  # whatever it is, the rules find words for it
        return False


def _arrays_look_right(inputs: _Array, targets: _Array, graph: ComputationGraph) -> bool:
    """Return whether inputs and targets have the model's shapes and types, and labels are classes of it."""
    words = any(layer.reads_data and isinstance(layer.operation, Embedding) for layer in graph.layers)
    if words or len(graph.data) > 1:
        return False  # the rules read all words, and further arrays
    if inputs.shape[1:] != _sample(graph) or not (inputs.dtype == np.uint8 or inputs.dtype.kind == "f"):
        return False
    if not graph.batch <= inputs.shape[0] == targets.shape[0]:
        return False
    if not _labelled(graph):
        return targets.dtype.kind == "f" and math.prod(targets.shape[1:]) == _classes(graph)
    if targets.dtype.kind not in "iu" or len(targets.shape) != 1:
        return False
    labels = targets.elements()
    return bool(labels.min() >= 0 and labels.max() < _classes(graph))


def _arrays(data: str) -> tuple[_Array, _Array]:
    """Return inputs and targets of an ``.npz`` file or of two ``.npy`` files, without reading them."""
    if not data.endswith(".npz"):
        paths = re.split(r"(?<=\.npy),", data, maxsplit=1)
        for path in paths:
            check_input(path, "data", limit_mib=ARRAYS_MIB)
        inputs, targets = (np.load(path, mmap_mode="r") for path in paths)
        return _Array(inputs.shape, inputs.dtype, lambda: inputs), _Array(targets.shape, targets.dtype, lambda: targets)
    check_input(data, "data", limit_mib=ARRAYS_MIB)
    with zipfile.ZipFile(data) as archive:
        return _member(data, archive, "inputs"), _member(data, archive, "targets")


def _member(path: str, archive: zipfile.ZipFile, name: str) -> _Array:
    """Return an array of an ``.npz`` file by its header alone."""
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)

    def elements() -> NDArray[Any]:
        with np.load(path) as arrays:
            return np.asarray(arrays[name])

    return _Array(shape, dtype, elements)


def _sample(graph: ComputationGraph) -> tuple[int, ...]:
    """Return channels and positions of an input."""
    return next(iter(graph.data.values())).sizes[1:]


def _labelled(graph: ComputationGraph) -> bool:
    loss = graph.layers[-1].operation
    return isinstance(loss, Loss) and loss.function == "softmax"  # labels of positions: the rules read them


def _classes(graph: ComputationGraph) -> int:
    return math.prod(graph.layers[-1].output.sizes[1:])
