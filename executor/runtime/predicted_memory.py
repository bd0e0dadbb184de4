"""Predicted memory of a run, with its optimizer and on its kind of device."""

import numpy as np
import torch
from numpy.typing import NDArray

from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.run_options import RunOptions
from planner.lowering.program import Program
from planner.memory.memory_policy import MemoryPolicy
from planner.memory.peak_memory import peak_memory_bytes


def memory_policy_of(optimizer: OptimizerSpec, *, host: bool) -> MemoryPolicy:
    """Return the memory policy of an optimizer, on processors such as this one or on GPUs."""
    has_momentum = optimizer.name == "sgd" and optimizer.momentum > 0
    block = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8
    return MemoryPolicy(optimizer="momentum" if has_momentum else optimizer.name, host=host, block=block)


def predicted_bytes(program: Program, options: RunOptions) -> NDArray[np.float64]:
    """Return the peak memory of every device, shape (devices,); on processors with the copies of their library."""
    host = options.device == "cpu" or (options.device == "auto" and not torch.cuda.is_available())
    return peak_memory_bytes(program, memory_policy_of(options.optimizer, host=host))
