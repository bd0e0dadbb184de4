"""Refusal of data and devices that cannot be used, before any rank starts; without torch, whose import takes long."""

import ctypes
import importlib.metadata
from pathlib import Path

from executor.data.requirements import DataRequirements
from executor.data.sources import opened_data
from executor.runtime.run_options import RunOptions
from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph
from planner.operations.mapped import Mapped


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
    if not options.stand_in:
        opened_data(options.data, DataRequirements.of(graph))


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
