"""Reader of local response norms, which PyTorch writes as a quotient.

Its function divides what it reads, x, by a power of the mean of the neighbouring channels' squares::

    mul x x -> view, or unsqueeze -> pad -> avg_pool -> squeeze -> view -> mul alpha -> add k -> pow beta -> div
"""

import re
from collections.abc import Mapping
from typing import Any

from planner.importing.read_convolutions import sizes
from planner.importing.read_elementwise import elementwise
from planner.importing.reader import GraphReader, handles
from planner.operations.normalisation import LocalResponseNorm
from planner.tracing.trace import Argument, TraceNode

_CHAIN = ("pow", "add", "mul", "avg_pool", "pad", "mul")
"""These operations from the last one back, without views."""
_VIEWS = ("view", "unsqueeze", "squeeze")


@handles("local_response_norm")
def local_response_norm(reader: GraphReader, node: TraceNode) -> Any:
    """Read a local response norm."""
    return _normalised(reader, node, reader.argument(node, "input"), node.arguments)


@handles("div")
def quotient(reader: GraphReader, node: TraceNode) -> Any:
    """Read a division: a local response norm if it ends one, else element by element."""
    fields = _response(reader, node)
    return _normalised(reader, node, reader.argument(node, "self"), fields) if fields else elementwise(reader, node)


def _normalised(reader: GraphReader, node: TraceNode, given: Any, fields: Mapping[str, Any]) -> Any:
    """Add a local response norm of an odd number of channels; of others nothing is known but sizes."""
    value, size = reader.plain(node, given), int(fields["size"])
    if value is None or size % 2 == 0:
        return reader.unknown(node, "its batch is not an axis of its own, or more neighbours are on one side")
    alpha, beta, k = (float(fields[name]) for name in ("alpha", "beta", "k"))
    return reader.emit(node, LocalResponseNorm(size=size, alpha=alpha, beta=beta, k=k), [value])


def _response(reader: GraphReader, node: TraceNode) -> Mapping[str, Any] | None:
    """Return size, alpha, beta and k of the norm that a division ends; None if it ends none."""
    steps, given = list[TraceNode](), node.arguments.get("other")
    while isinstance(given, Argument) and given.name in reader.nodes and len(steps) < len(_CHAIN):
        step = reader.nodes[given.name]
        steps += [step] * (step.operation not in _VIEWS)
        given = step.arguments.get("input", step.arguments.get("self"))
    if [re.sub(r"\dd$", "", step.operation) for step in steps] != list(_CHAIN):
        return None
    power, added, scaled, mean, pad, squares = (step.arguments for step in steps)
    rank, read, around = int(steps[3].operation[-2]), node.arguments["self"], pad.get("pad") or ()
    kernel = size, *others = sizes(mean.get("kernel_size"), rank)
    strides = sizes(mean.get("stride") or kernel, rank)
    norm = {"size": size, "alpha": scaled.get("other"), "beta": power.get("exponent"), "k": added.get("other")}
    plain = {*others, *strides, added.get("alpha", 1)} == {1} and not any(sizes(mean.get("padding"), rank, 0))
    padded = pad.get("mode", "constant") == "constant" and not pad.get("value")
    padded = padded and [*around] == [*[0] * (len(around) - 2), size // 2, (size - 1) // 2]
    channels = [count + size - 1 for count in reader.resolved(read).shape[1:2]]
    whole = steps[4].results[0].shape[1:3] == (1, *channels)  # it runs over the channels
    numbers = all(isinstance(each, int | float) for each in norm.values())
    squared = squares.get("self") == squares.get("other") == read
    return norm if plain and padded and whole and numbers and squared and size % 2 else None
