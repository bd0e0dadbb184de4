"""What would make a plan fit that does not: each change is tried, by what it would hold in program order."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from hwprofiles import OrreryError
from planner.cost import CostModel
from planner.lowering import Program, lower
from planner.memory.memory_policy import MemoryPolicy
from planner.memory.peak_memory import peak_memory_bytes
from planner.parallel import (
    KEEP_ACTIVATIONS,
    NAMED,
    SEGMENTS,
    MicroBatching,
    Recompute,
    named_strategy,
    recompute_of,
    space_of,
    spaces_of,
)

__all__ = ["nearest_change"]

_MOST_TASKS = 1_000_000
"""Lowered for all attempts together: some seconds; what costs more is not tried."""
_MOST_PIECES, _MOST_HALVINGS = 64, 12
"""Times as many sub-batches, and halvings of the batch, that are tried."""
_Attempt = tuple[str, Callable[[], Program]]


def nearest_change(
    model: CostModel,
    program: Program,
    memory_policy: MemoryPolicy,
    *,
    recompute: Recompute = KEEP_ACTIVATIONS,
    most: int = 3,
) -> str:
    """Up to so many changes that make a program fit, in the order in which they are easiest to have.

    Recomputation; sub-batches, each forward and back before the next; both; another named strategy; a smaller batch.
    Where all layers are split by samples alone, a smaller batch is as many more devices.

    Args:
        model: Of the program, with its cluster.
        program: What does not fit.
        memory_policy: State that devices hold besides the tensors of the network.
        recompute: What it computes again.
        most: Changes to name.
    """
    left, found = _MOST_TASKS, list[str]()
    for attempts in chain(_in_order(model, program, recompute), [_smaller(model, program, recompute)]):
        for words, lowered in attempts:
            if left < program.size:
                break
            changed = _tried(lowered)
            left -= program.size if changed is None else changed.size
            if changed is not None and _fits(changed, memory_policy):
                found.append(words)
                break
        if len(found) == most:
            break
    if not found:
        return "use more devices: no recomputation, sub-batches, named strategy or smaller batch that was tried fits"
    return f"what fits: {', or '.join(found)}"


def _tried(lowered: Callable[[], Program]) -> Program | None:
    try:
        return lowered()
    except OrreryError:  # this batch, or this cluster, cannot have it
        return None


def _fits(program: Program, memory_policy: MemoryPolicy) -> bool:
    capacity = np.array([device.memory_bytes for device in program.cluster.devices])
    return bool((peak_memory_bytes(program, memory_policy) <= capacity).all())


def _in_order(model: CostModel, program: Program, recompute: Recompute) -> Iterator[Iterator[_Attempt]]:
    """Kinds of changes of the same batch; of each kind the first that fits is enough."""
    graph, spaces, micro_batching, count = (
        program.graph,
        program.spaces,
        program.micro_batching,
        len(model.cluster.devices),
    )
    again = recompute or recompute_of(graph, SEGMENTS, micro_batching)
    change = partial(lower, model, compressed=program.compressed)
    if not recompute:
        yield iter([("--recompute segments", partial(change, spaces, micro_batching=micro_batching, recompute=again))])
    for more, words in ((recompute, ""), (again, " with --recompute segments")):
        if more or not words:
            yield (
                (f"{_named(pieces)}{words}", partial(change, spaces, micro_batching=pieces, recompute=more))
                for pieces in _cuts(graph.batch, micro_batching)
            )

    def other(name: str) -> Program:
        return change(spaces_of(graph, named_strategy(name, graph, count), count))

    for name in NAMED:
        yield iter([(f"strategy {name}", partial(other, name))])


def _cuts(batch: int, micro_batching: MicroBatching) -> Iterator[MicroBatching]:
    """More sub-batches than there are; of a network without any, all layers take them."""
    parts = micro_batching.parts
    while parts < min(batch, _MOST_PIECES * max(micro_batching.parts, 1)):
        parts *= 2
        if batch % parts == 0:
            yield (
                replace(micro_batching, parts=parts)
                if micro_batching.parts > 1
                else MicroBatching(parts=parts, first=0)
            )


def _named(micro_batching: MicroBatching) -> str:
    return f"{micro_batching.parts} {'micro' if len(micro_batching.starts) > 1 else 'sub'}-batches"


def _smaller(model: CostModel, program: Program, recompute: Recompute) -> Iterator[_Attempt]:
    """Smaller batches, the larger first: by eighths of it, of its half, of its quarter, and so on."""
    graph, micro_batching, count = program.graph, program.micro_batching, len(model.cluster.devices)
    unit = micro_batching.parts * math.lcm(*(int(space.degrees[0, 0]) for space in program.spaces))
    shares = [graph.batch * eighth // 8 >> half for half in range(_MOST_HALVINGS) for eighth in (7, 6, 5, 4)]
    by_samples = all((space.degrees[0, 1:] == 1).all() for space in program.spaces)

    def smaller(batch: int) -> Program:
        other = model.for_batch(batch)
        rows = zip(program.spaces, other.graph.layers, strict=True)
        spaces = [space_of(layer, space.configuration(0), count) for space, layer in rows]
        return lower(other, spaces, micro_batching=micro_batching, compressed=program.compressed, recompute=recompute)

    for batch in sorted({share // unit * unit for share in shares}, reverse=True):
        if 0 < batch < graph.batch:
            more = f" (or {-(-graph.batch // batch)} times the devices)" if by_samples else ""
            yield f"a batch of {batch}{more}", partial(smaller, batch)
