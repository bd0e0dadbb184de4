"""What a stage of a pipeline surely needs, layer by layer: the form that an exact partition can add up.

Every output counts once and every gradient in hand once.  What operations keep beside these, and what they turn
gradients into, is left to ``planner.memory.peak_memory``, which decides whether a plan fits.
"""

import numpy as np
from numpy.typing import NDArray

from planner.lowering.program import KINDS, Program
from planner.memory.buffer_account import parameter_bytes, residuals
from planner.memory.peak_memory import COPIES_OF_PARAMETERS
from planner.strategies.micro_batches import schedule_of


def surely_needed_bytes(program: Program) -> NDArray[np.float64]:
    """Bytes that each device surely holds, at the layer of the backward pass where that is most.

    Parameters with gradient and momentum, always.  While a layer computes backward: the output parts of it and of
    the layers before it, and the regions received for them, kept until then; its gradients in hand (of its output
    and its inputs, and what it sends back); and the gradients of earlier outputs that other branches have left.
    Of layers that take sub-batches, gradients are of one, and outputs of as many as the schedule has in flight.
    Codes of a tensor's gradient are there with it; those of parameters' gradients, and residuals, always.

    Returns:
        Shape (devices,).
    """
    graph, count = program.graph, len(program.cluster.devices)
    parameters, outputs = np.zeros(count), np.zeros((len(graph.layers), count))
    at_once = np.array([1 / program.micro_batching.of(i) for i in range(len(graph.layers))])
    for i, (layer, space) in enumerate(zip(graph.layers, program.spaces, strict=True)):
        outputs[i, space.devices] = layer.output.elements * graph.element_bytes * at_once[i] / len(space.devices)
        if graph.has_phase(i, "update"):
            parameters[space.devices] += parameter_bytes(program, i) * COPIES_OF_PARAMETERS
    kept = outputs.copy()
    transfer = program.kind == KINDS.index("transfer")
    received, sent = np.flatnonzero(transfer & ~program.backward), np.flatnonzero(transfer & program.backward)
    sizes = np.where(transfer, program.region_bytes * at_once[program.consumer], 0.0)
    np.add.at(kept, (program.consumer[received], program.peer[received]), sizes[received])
    gradients = outputs.copy()
    for edge in graph.edges:
        gradients[edge.consumer] += outputs[edge.producer]
    np.add.at(gradients, (program.consumer[sent], program.device[sent]), sizes[sent])
    total = _kept(program, kept) + gradients + _pending(program, outputs)
    tensor, codes = program.consumer >= 0, program.compressed_bytes + program.decompressed_bytes
    coded = np.flatnonzero(program.is_codec & tensor & program.backward)
    np.add.at(total, (program.consumer[coded], program.device[coded]), codes[coded])
    coded = np.flatnonzero(program.is_codec & ~tensor)
    np.add.at(parameters, program.device[coded], codes[coded])
    for i, device in residuals(program):
        parameters[device] += parameter_bytes(program, i)[program.spaces[i].part_on(count)[device]]
    peak: NDArray[np.float64] = parameters + total.max(axis=0)
    return peak


def _kept(program: Program, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """What is kept while a layer computes backward, shape (layers, devices).

    Args:
        program: The program.
        sizes: Shape (layers, devices): bytes kept for each layer, of one sub-batch where it takes them.
    """
    micro_batching, kept = program.micro_batching, np.cumsum(sizes, axis=0)
    if micro_batching.parts == 1:
        return kept
    schedule, stages = schedule_of(micro_batching, program.spaces), micro_batching.layers_of(len(sizes))
    whole = np.array([sizes[rows.start : rows.stop].sum(axis=0) for rows in stages])
    for stage, rows in enumerate(stages):
        together = schedule.stages_of(schedule.groups[stage])
        others = np.array(schedule.in_flight_at_backward[stage]) @ whole[together] - whole[stage]
        before = sizes[: micro_batching.first].sum(axis=0) + others.max(axis=0)
        kept[rows.start : rows.stop] = before + np.cumsum(sizes[rows.start : rows.stop], axis=0)
    return kept


def _pending(program: Program, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gradients of outputs before a layer that consumers after it have made already, shape (layers, devices)."""
    pending = np.zeros_like(outputs)
    for u, edges in enumerate(program.graph.consumers):
        if len(edges) > 1:
            consumers = sorted(edge.consumer for edge in edges)
            # in hand at the consumers themselves: counted there
            for v in range(u + 1, consumers[-1]):
                if v not in consumers:
                    pending[v] += outputs[u]
    return pending
