"""Memory that a program keeps on every device at its peak."""

import numpy as np
from numpy.typing import NDArray

from hwprofiles.errors import InfeasiblePlanError
from planner.program import KINDS, Program

__all__ = ["check_memory", "parameter_bytes", "peak_memory_bytes"]

_COPIES_OF_PARAMETERS = 3
"""Value, gradient and momentum of every trained number."""


def peak_memory_bytes(program: Program) -> NDArray[np.float64]:
    """Bytes that each device must hold, when most is alive: as the backward pass begins.

    Parameters with gradient and momentum; every layer's output part, kept for backward; regions received
    forward, kept for the weight gradients; and the gradients in hand at the layer where they weigh most.

    Returns:
        Shape (devices,).
    """
    graph, count = program.graph, len(program.cluster.devices)
    total, outputs = np.zeros(count), np.zeros((len(graph.layers), count))
    forward = np.flatnonzero(program.kind == KINDS.index("forward"))
    for i, layer in enumerate(graph.layers):
        devices = program.device[forward[program.layer[forward] == i]]
        outputs[i, devices] = layer.output.elements * graph.element_bytes / len(devices)
    updates = np.flatnonzero(program.kind == KINDS.index("update"))
    for i in np.unique(program.layer[updates]).tolist():
        tasks = updates[program.layer[updates] == i]
        total[program.device[tasks]] += parameter_bytes(program, i) * _COPIES_OF_PARAMETERS
    received = np.flatnonzero((program.peer >= 0) & ~program.backward)
    np.add.at(total, program.peer[received], program.size_bytes[received])
    peak: NDArray[np.float64] = total + outputs.sum(axis=0) + _gradients(program, outputs).max(axis=0)
    return peak


def _gradients(program: Program, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gradients alive while a layer computes backward: of its output and its inputs, and what it sends back.

    Args:
        outputs: Shape (layers, devices): bytes of the output part that each device holds.

    Returns:
        Shape (layers, devices).
    """
    gradients = outputs.copy()
    for edge in program.graph.edges:
        gradients[edge.consumer] += outputs[edge.producer]
    sent = np.flatnonzero((program.peer >= 0) & program.backward)
    np.add.at(gradients, (program.consumer[sent], program.device[sent]), program.size_bytes[sent])
    return gradients


def parameter_bytes(program: Program, layer: int) -> float:
    """Bytes of a layer's parameters on each device that holds some."""
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
