"""Slices of parameters that parts hold."""

from executor.runtime.boxes import Box
from planner.graph.parameters import Parameter, parameter_maps
from planner.graph.shapes import IN_CHANNEL, Shape


def parameter_box(parameter: Parameter, held: Box, output: Shape) -> Box:
    """Return the slice of a parameter that a part holds: of its channels, and for partial sums of its second axis.

    Args:
        parameter: A parameter of the layer.
        held: The part's box of the output.
        output: Shape of the layer's output.
    """
    low, high = [0] * len(parameter.shape), list(parameter.shape)
    channel = output.dims.index("channel")
    for axis, each in enumerate(parameter_maps(parameter, output)):
        if each.dim is not None:
            low[axis], high[axis] = held.low[channel], held.high[channel]
    if IN_CHANNEL in output.dims:
        slices = output.dims.index(IN_CHANNEL)
        size = parameter.shape[1] // output.sizes[slices]
        low[1], high[1] = held.low[slices] * size, held.high[slices] * size
    return Box(tuple(low), tuple(high))
