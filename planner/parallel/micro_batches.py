"""Sub-batches: the last layers of a network take the mini-batch in equal pieces, one after another.

Where these layers lie in stages on devices of their own, this is a pipeline, and sub-batches are its micro-batches:
``Cut(parts=4, stages=(0, 5, 9), order="1f1b")`` has three stages, of the layers 0 to 4, 5 to 8 and 9 to the last; the
layers' configurations say where each stage lies and how its layers are split there.

Source:
    Dettmers, "8-bit approximations for parallelism in deep learning", ICLR 2016, Sec. 2.4: data parallelism in the
    convolutional part, then sub-batches through the fully connected part, whose transfers hide one another's
    arithmetic.  With the whole network cut, these are the micro-batches of gradient accumulation.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hwprofiles import ConfigError
from planner.graph import ComputationGraph
from planner.parallel.configurations import ConfigSpace, space_of
from planner.parallel.pipeline_schedule import PIPELINE_SCHEDULES, PipelineSchedule

__all__ = [
    "ORDERS",
    "WHOLE_BATCH",
    "MicroBatching",
    "interleave_degree",
    "micro_batching_of",
    "requested_micro_batching",
    "schedule_of",
    "sub_spaces",
]

ORDERS = ("each", "all")
"""``each``: a sub-batch goes forward and back before the next; ``all``: all go forward, then all go back.  These are
the schedules 1F1B and GPipe of one stage."""
_ONE_STAGE = {"each": "1f1b", "all": "gpipe"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatching:
    """How the last layers take the mini-batch.

    Every part of a layer before the cut holds samples of its own; sub-batch s is the s-th piece of each of them.
    """

    parts: int = 1
    """Number of sub-batches."""
    first: int = 0
    """Index of the first layer that takes them; all after it do."""
    order: str = "each"
    """One of ``ORDERS``, or of ``planner.parallel.pipeline_schedule.KINDS``."""
    stages: tuple[int, ...] = ()
    """Index of the first layer of each stage of these layers, in order; none: they are one stage."""
    update_each: bool = False
    """Update the parameters of these layers after every sub-batch; else once an iteration."""

    def of(self, layer: int) -> int:
        """Sub-batches that a layer takes; 1 before the cut."""
        return self.parts if layer >= self.first else 1

    @property
    def starts(self) -> tuple[int, ...]:
        """Index of the first layer of each stage."""
        return self.stages or (self.first,)

    def stage_of(self, layer: int) -> int:
        """Stage of a layer; -1 before the cut."""
        return bisect_right(self.starts, layer) - 1

    def layers_of(self, count: int) -> list[range]:
        """Layers of each stage, of a network of ``count`` layers."""
        return [range(begin, end) for begin, end in pairwise([*self.starts, count])]


WHOLE_BATCH = MicroBatching()
"""No cut."""


def micro_batching_of(
    graph: ComputationGraph, parts: int, *, first: str = "", order: str = "each", update_each: bool = False
) -> MicroBatching:
    """A cut by the name of its first layer.

    Args:
        graph: The network.
        parts: Sub-batches, >= 1; must divide the batch.
        first: The first layer that takes them; empty: the first fully connected one.
        order, update_each: As in ``MicroBatching``.

    Raises:
        ConfigError: A value breaks its rule, or the network has no such layer.
    """
    if parts < 1 or graph.batch % parts:
        raise ConfigError(f"sub_batches must be >= 1 and divide the batch of {graph.batch}, got {parts}")
    if order not in ORDERS:
        raise ConfigError(f"sub_batch_order must be {' or '.join(ORDERS)}, got {order!r}")
    if update_each and order != "each":
        raise ConfigError("update_each needs sub_batch_order each: a forward pass must not see half an update")
    if first and first not in graph.index:
        raise ConfigError(f"sub_batch_from must be a layer of {graph.name}, got {first!r}")
    linear = next((i for i, layer in enumerate(graph.layers) if layer.operation.kind == "linear"), None)
    if not first and linear is None:
        raise ConfigError(f"sub_batch_from must name a layer: {graph.name} has no fully connected ones")
    index = graph.index[first] if first else linear
    assert index is not None
    return MicroBatching(parts=parts, first=index, order=order, update_each=update_each)


def requested_micro_batching(
    graph: ComputationGraph, parts: int, *, first: str = "", order: str = "each", update_each: bool = False
) -> MicroBatching:
    """What is asked of sub-batches, as words: a cut as of ``micro_batching_of``, or none where there is one sub-batch.

    Raises:
        ConfigError: As ``micro_batching_of``, or there is one sub-batch and something else is asked of it.
    """
    if parts != 1:
        return micro_batching_of(graph, parts, first=first, order=order, update_each=update_each)
    asked = {"sub_batch_from": first, "sub_batch_order": order if order != "each" else "", "update_each": update_each}
    for name, value in asked.items():
        if value:
            raise ConfigError(f"{name} must be left out where sub_batches is 1, got {value!r}")
    return WHOLE_BATCH


def schedule_of(micro_batching: MicroBatching, spaces: Sequence[ConfigSpace]) -> PipelineSchedule:
    """The schedule of a cut; stages that share devices are a group.

    Args:
        cut: The cut.
        spaces: For every layer the space that holds its one configuration.

    Raises:
        ConfigError: The stages do not begin where the cut does or are empty, the order is unknown or not one for
            several stages, or the schedule's own rule is broken.
    """
    starts, stages = micro_batching.starts, micro_batching.layers_of(len(spaces))
    if starts[0] != micro_batching.first or not all(stages):
        raise ConfigError(
            f"stages must begin at layer {micro_batching.first}, each before the next and "
            f"all before layer {len(spaces)}, got {list(starts)}"
        )
    kind = micro_batching.order
    if len(starts) == 1:
        return PipelineSchedule(kind=_ONE_STAGE.get(kind, kind), micro_batches=micro_batching.parts)
    if kind in ORDERS:
        raise ConfigError(
            f"schedule of {len(starts)} stages must be one of {', '.join(PIPELINE_SCHEDULES)}, got {kind!r}"
        )
    groups, held = list[int](), list[set[int]]()
    for layers in stages:
        devices = {device for i in layers for device in spaces[i].devices.tolist()}
        shared = [group for group, others in enumerate(held) if devices & others]
        if len(shared) > 1:
            raise ConfigError(f"stage {len(groups)} must not share devices with stages on different devices")
        groups.append(shared[0] if shared else len(held))
        if not shared:
            held.append(set())
        held[groups[-1]] |= devices
    return PipelineSchedule(kind=kind, micro_batches=micro_batching.parts, groups=tuple(groups))


def sub_spaces(
    graph: ComputationGraph, spaces: Sequence[ConfigSpace], micro_batching: MicroBatching, device_count: int
) -> list[ConfigSpace]:
    """The spaces of all layers for one sub-batch: what a cut layer holds, and pieces of what others hold.

    Args:
        graph: The network with the batch of one sub-batch.
        spaces: For the whole batch, one configuration each.
        cut: The cut.
        device_count: Devices of the cluster.

    Raises:
        ConfigError: A layer's parts of a sub-batch would not be equal, or layers before the cut would not give the
            same samples to a sub-batch.
    """
    if micro_batching.parts == 1:
        return list(spaces)
    interleave_degree(graph, spaces, micro_batching)
    touched = {edge.producer for edge in graph.edges if edge.consumer >= micro_batching.first}
    found = []
    for i, (layer, whole) in enumerate(zip(graph.layers, spaces, strict=True)):
        if i < micro_batching.first and i not in touched:
            found.append(whole)
            continue
        try:
            found.append(space_of(layer, whole.configuration(0), device_count))
        except ConfigError as error:
            raise ConfigError(f"sub-batches of {graph.batch} samples: {error}") from None
    return found


def interleave_degree(graph: ComputationGraph, spaces: Sequence[ConfigSpace], micro_batching: MicroBatching) -> int:
    """Pieces of the mini-batch of each of which a sub-batch takes its share.

    Sub-batch s of k holds, for each of P pieces of the mini-batch, the s-th of its k shares, one after another: what
    every part of the layers before the cut gives from its own samples.  P is their degree in the sample dimension; 1
    where the cut layers read the data alone.

    Args:
        graph: The network, with any batch.
        spaces: For every layer the space that holds its one configuration.
        cut: The cut.

    Raises:
        ConfigError: The layers read across the cut differ in that degree.
    """
    read = (
        sorted({e.producer for e in graph.edges if e.producer < micro_batching.first <= e.consumer})
        if micro_batching.parts > 1
        else []
    )
    degrees = {graph.layers[i].name: int(spaces[i].degrees[0, 0]) for i in read}
    if len(set(degrees.values())) > 1:
        raise ConfigError(f"layers read across the cut must have one degree in samples, got {degrees}")
    return next(iter(degrees.values()), 1)
