"""What a run is predicted to hold, with the optimizer and on the device that it is run with."""

import numpy as np
import torch
from numpy.typing import NDArray

from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.run_options import RunOptions
from planner.lowering import Program
from planner.memory import MemoryPolicy, peak_memory_bytes

__all__ = ["memory_policy_of", "predicted_bytes"]


def memory_policy_of(optimizer: OptimizerSpec, *, host: bool) -> MemoryPolicy:
    """What an optimizer keeps, on processors or on GPUs."""
    moves = optimizer.name == "sgd" and optimizer.momentum > 0
    return MemoryPolicy(optimizer="momentum" if moves else optimizer.name, host=host)


def predicted_bytes(program: Program, options: RunOptions) -> NDArray[np.float64]:
    """Peak of every device, shape (devices,); on processors with the copies that their library makes."""
    host = options.device == "cpu" or (options.device == "auto" and not torch.cuda.is_available())
    return peak_memory_bytes(program, memory_policy_of(options.optimizer, host=host))
