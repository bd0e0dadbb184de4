"""Units of divided storage: layers whose parameters are gathered, and whose gradients are summed, together.

A unit is a block of the network: layers whose names agree up to their first number, as wrapped modules do.  All others,
such as embeddings and the last norm, and what other layers borrow, are one unit.  Where parameters are whole, units are
buckets of so many gradients.

Source:
    NVIDIA, Megatron Core, ``DistributedDataParallelConfig.bucket_size``: at least 40 million parameters a bucket.
"""

from planner.graph.computation_graph import ComputationGraph

_BUCKET_ELEMENTS = 40_000_000
"""Least parameters of a bucket where parameters are whole."""


def storage_units(graph: ComputationGraph, *, whole: bool) -> list[tuple[int, ...]]:
    """Return the layers with parameters that are gathered, and whose gradients are summed, together.

    Args:
        graph: The network.
        whole: Whether parameters are whole, and units buckets; else the first unit is what lies in no block, and what
            other layers borrow.
    """
    trained = [i for i, layer in enumerate(graph.layers) if layer.trains]
    units: list[list[int]] = [[]]
    if whole:
        held = 0
        for i in reversed(trained):  # as their gradients are computed
            units[-1].append(i)
            held += sum(each.elements for each in graph.layers[i].parameters)
            if held >= _BUCKET_ELEMENTS:
                units.append([])
                held = 0
        return [tuple(reversed(unit)) for unit in reversed(units) if unit]
    blocks: dict[str, list[int]] = {"": []}
    lent = {way.producer for way, shared in graph.shared.items() if not shared.frozen}
    numbered = any(block_of(graph.layers[i].name) for i in trained)  # without such names every layer is a unit
    for i in trained:
        block = block_of(graph.layers[i].name) if numbered else str(i)
        blocks.setdefault("" if i in lent else block, []).append(i)
    return [tuple(block) for block in blocks.values()]


def block_of(name: str) -> str:
    """Return a layer's name up to its first number, which names its block; empty for names without."""
    words = name.split(".")
    numbers = [k for k, word in enumerate(words) if word.isdecimal()]
    return ".".join(words[: numbers[0] + 1]) if numbers else ""
