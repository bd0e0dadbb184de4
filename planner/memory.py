"""Memory that a program keeps on every device at its peak."""

import numpy as np
from numpy.typing import NDArray

from hwprofiles.errors import InfeasiblePlanError
from planner.program import Program

__all__ = ["check_memory", "peak_memory_bytes"]

_COPIES_OF_PARAMETERS = 3
"""Value, gradient and momentum of every trained number."""


def peak_memory_bytes(program: Program) -> NDArray[np.float64]:
    """Bytes held by each device at the end of the forward pass, when most is alive.

    Parameters with gradient and momentum; every layer's output part, kept for backward; regions received
    forward, kept for the weight gradients; and the largest output part once more, for the gradient that is
    being computed.  Nothing is reused before that point.

    Returns:
        Shape (devices,).
    """
    graph, count = program.graph, len(program.cluster.devices)
    total, widest = np.zeros(count), np.zeros(count)
    forward = np.flatnonzero(program.kind == 0)
    for i, layer in enumerate(graph.layers):
        devices = program.device[forward[program.layer[forward] == i]]
        share = graph.element_bytes / len(devices)
        total[devices] += layer.output.elements * share
        widest[devices] = np.maximum(widest[devices], layer.output.elements * share)
    updates = np.flatnonzero(program.kind == 3)
    for i in np.unique(program.layer[updates]).tolist():
        tasks = updates[program.layer[updates] == i]
        total[program.device[tasks]] += _parameters_held(program, i) * _COPIES_OF_PARAMETERS
    received = np.flatnonzero((program.peer >= 0) & ~program.backward)
    np.add.at(total, program.peer[received], program.size_bytes[received])
    return total + widest


def _parameters_held(program: Program, layer: int) -> float:
    """Bytes of a layer's parameters on each of its devices."""
    channel = program.channel_degree[layer]
    parameters = program.graph.layers[layer].parameters
    return float(sum(p.elements / (channel if p.split else 1) for p in parameters) * program.graph.element_bytes)


def check_memory(program: Program) -> NDArray[np.float64]:
    """Peak memory of every device, where all of it fits.

    Raises:
        InfeasiblePlanError: A device holds less than it needs; names the fullest one with both numbers.
    """
    needed = peak_memory_bytes(program)
    capacity = np.array([device.memory_bytes for device in program.cluster.devices])
    worst = int((needed / capacity).argmax())
    if needed[worst] > capacity[worst]:
        name = program.cluster.devices[worst].name
        raise InfeasiblePlanError(
            f"plan does not fit on {name}: needs {needed[worst] / 2**30:.2f} GiB, the device has "
            f"{capacity[worst] / 2**30:.2f} GiB; use more devices or a smaller batch"
        )
    return needed
