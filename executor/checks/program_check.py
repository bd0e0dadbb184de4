"""Checks that a program can be run."""

from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph
from planner.lowering.program import Program
from planner.operations.loss import Loss
from planner.operations.mapped import Mapped

_RUN = ("", "float32", "float64", "bfloat16", "float16")
"""Arithmetics that ranks compute in; empty: that of the network's elements."""
_HALF = ("bfloat16", "float16")


def check_program(program: Program, ranks: int) -> None:
    """Check that a program can be run.

    Raises:
        ConfigError: There are fewer ranks than devices in the plan, products are of an arithmetic that ranks do not
            compute in, gradients that are compressed have a type of their own, the network does not end in a loss,
            parameters lie on servers, a parameter is not split with its layer's channels, or an imported layer cannot
            be computed as it is divided.
    """
    devices = 1 + max(int(space.devices.max()) for space in program.spaces)
    if devices > ranks:
        raise ConfigError(f"processes must be at least the plan's {devices} devices, got {ranks}")
    if program.host_copies:
        raise ConfigError(
            f"framework must not be ps to be run: no rank serves parameters, got {program.framework.text!r}"
        )
    graph, types = program.graph, program.types
    if types.product not in _RUN:
        raise ConfigError(f"dtype must be one of {', '.join(filter(None, _RUN))} to be run, got {types.product!r}")
    if types.accumulation != types.activation and program.compressed.gradients:
        raise ConfigError("gradient_dtype must be dtype to run gradients that are compressed")
    if program.compressed and types.activation in _HALF:
        raise ConfigError(
            f"dtype must be float32 or float64 to run messages that are compressed, got {types.activation!r}"
        )
    if types.activation == "float16" and types.updated == "float16":
        raise ConfigError("master_dtype must be float32 to run float16, whose gradients are scaled, got 'none'")
    _check_targets(graph)
    _check_reductions(program)
    micro_batching = program.micro_batching
    computed = graph.with_batch(graph.batch // micro_batching.parts) if micro_batching.parts > 1 else graph
    for i, layer in enumerate(graph.layers):
        if isinstance(layer.operation, Mapped):
            from executor.checks.imported_layers import check_imported  # loads torch, which takes seconds

            check_imported(computed if micro_batching.of(i) > 1 else graph, i, program.spaces_at(i)[i])
        if not graph.consumers[i] and not isinstance(layer.operation, Loss):
            raise ConfigError(f"layer {layer.name} of {graph.name} must be read by another or be a loss to be run")


def _check_targets(graph: ComputationGraph) -> None:
    """Refuse losses whose targets have not the sizes of those of the last one, which all share."""
    losses = [layer for layer in graph.layers if isinstance(layer.operation, Loss)]
    for layer in losses:
        if layer.operation != losses[-1].operation or layer.output.sizes != losses[-1].output.sizes:
            sizes = [list(each.output.sizes) for each in (losses[-1], layer)]
            raise ConfigError(
                f"loss {layer.name} must be as {losses[-1].name}, with sizes {sizes[0]}, to be run, as all have one "
                f"target: got {layer.operation.kind} with {sizes[1]}"
            )


def _check_reductions(program: Program) -> None:
    """Refuse sums of a layer of whose parameters channels do not split some, but rings of whole gradients."""
    sums = program.syncs_gradients
    other = {int(program.layer[t]) for t, each in program.collectives.items() if sums[t] and not each.round.is_ring}
    for i, layer in enumerate(program.graph.layers):
        kinds = {each.split for each in layer.parameters if each.elements}
        shards = {int(program.spaces[i].shards(split)[0]) for split in kinds and {layer.split, *kinds}}
        if program.conditions.storage.divides and len(shards) > 1:
            raise ConfigError(
                f"zero must be 0 to run layer {layer.name}, whose channels are split, but not all of its parameters, "
                f"got {program.conditions.storage.zero}"
            )
        if len(kinds) > 1 and i in other:
            raise ConfigError(
                f"gradient_sync must be ring or library to run layer {layer.name}, of whose parameters channels split "
                f"some and not others"
            )
