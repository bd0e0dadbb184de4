"""Micro-batching: the last layers of a network compute the mini-batch in equal micro-batches, one after another.

One description, ``MicroBatching``, covers three techniques:

* sub-batches of the 8-bit paper: the layers before the first fully connected one compute the whole mini-batch by data
  parallelism, those from it on compute micro-batches, so that the transfers of one overlap the arithmetic of another;
* gradient accumulation: all layers compute micro-batches (``first=0``) and update their parameters once;
* pipeline parallelism: the layers that compute micro-batches form stages on devices of their own.
  ``MicroBatching(parts=4, stages=(0, 5, 9), order="1f1b")`` has three stages, of the layers 0 to 4, 5 to 8 and 9 to
  the last; the layers' configurations give each stage's devices and the split of its layers over them.

Source:
    Dettmers, "8-bit approximations for parallelism in deep learning", ICLR 2016, Sec. 2.4, for sub-batches;
    Huang et al., "GPipe", NeurIPS 2019, for micro-batches of pipelines.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph
from planner.layouts.configurations import ConfigSpace, space_of
from planner.strategies.pipeline_schedule import PIPELINE_SCHEDULES, PipelineSchedule

ORDERS = ("each", "all")
"""Orders of micro-batches in one stage.  ``each``: forward and backward of one micro-batch before the next; ``all``:
forward of all, then backward of all.  These are the schedules 1F1B and GPipe of one stage."""
_ONE_STAGE = {"each": "1f1b", "all": "gpipe"}
"""Pipeline schedules that do the same as ``ORDERS`` in one stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatching:
    """Micro-batches of a network's last layers: their number, order and pipeline stages.

    Covers sub-batches of the 8-bit paper, gradient accumulation, and micro-batches of pipelines; see the module.  Every
    part of a layer before the first with micro-batches holds a shard of the samples; micro-batch s is the s-th share
    of each of these shards, so that no sample moves where micro-batches begin.
    """

    parts: int = 1
    """Number of micro-batches."""
    first: int = 0
    """Index of the first layer that computes micro-batches; all layers behind it do."""
    order: str = "each"
    """One of ``ORDERS``, or for several stages of ``planner.strategies.pipeline_schedule.PIPELINE_SCHEDULES``."""
    stages: tuple[int, ...] = ()
    """Index of the first layer of each pipeline stage, in order; empty: the layers are one stage."""
    update_each: bool = False
    """True to update the parameters of these layers after every micro-batch, False for once an iteration."""

    def of(self, layer: int) -> int:
        """Return the number of micro-batches that a layer computes; 1 for layers that compute the whole mini-batch."""
        return self.parts if layer >= self.first else 1

    @property
    def starts(self) -> tuple[int, ...]:
        """Index of the first layer of each stage."""
        return self.stages or (self.first,)

    def stage_of(self, layer: int) -> int:
        """Return the stage of a layer; -1 for layers that compute the whole mini-batch."""
        return bisect_right(self.starts, layer) - 1

    def layers_of(self, count: int) -> list[range]:
        """Return the layers of each stage of a network of ``count`` layers."""
        return [range(begin, end) for begin, end in pairwise([*self.starts, count])]


WHOLE_BATCH = MicroBatching()
"""No micro-batches: all layers compute the whole mini-batch."""


def micro_batching_of(
    graph: ComputationGraph, parts: int, *, first: str = "", order: str = "each", update_each: bool = False
) -> MicroBatching:
    """Return micro-batching given by the name of the first layer that computes micro-batches.

    Args:
        graph: The network.
        parts: Number of micro-batches, >= 1; must divide the batch.
        first: First layer that computes them; empty: the first fully connected one.
        order: One of ``ORDERS``.
        update_each: True to update parameters after every micro-batch.

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


def schedule_of(micro_batching: MicroBatching, spaces: Sequence[ConfigSpace]) -> PipelineSchedule:
    """Return the pipeline schedule of micro-batching; stages that share devices are a group.

    Args:
        micro_batching: Micro-batches, their order and the stages.
        spaces: For every layer the space that holds its one configuration.

    Raises:
        ConfigError: The first stage does not begin at the first layer with micro-batches, a stage is empty, the order
            is unknown or not one for several stages, or the schedule's own rule is broken.
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


def micro_batch_spaces(
    graph: ComputationGraph, spaces: Sequence[ConfigSpace], micro_batching: MicroBatching, device_count: int
) -> list[ConfigSpace]:
    """Return the spaces of all layers for one micro-batch.

    Layers that compute the whole mini-batch have the space of a micro-batch too if layers with micro-batches read
    them, else that of the mini-batch.

    Args:
        graph: The network with the batch of one micro-batch.
        spaces: Spaces for the whole mini-batch, one configuration each.
        micro_batching: The micro-batches.
        device_count: Devices of the cluster.

    Raises:
        ConfigError: A micro-batch cannot be split into equal parts, or the layers whose outputs are divided into
            micro-batches do not agree on the samples of each.
    """
    if micro_batching.parts == 1:
        return list(spaces)
    interleave_degree(graph, spaces, micro_batching)
    read = {edge.producer for edge in graph.edges if edge.consumer >= micro_batching.first}
    small = []
    for i, (layer, whole) in enumerate(zip(graph.layers, spaces, strict=True)):
        if i < micro_batching.first and i not in read:
            small.append(whole)
            continue
        try:
            small.append(space_of(layer, whole.configuration(0), device_count))
        except ConfigError as error:
            raise ConfigError(f"micro-batches of {graph.batch} samples: {error}") from None
    return small


def interleave_degree(graph: ComputationGraph, spaces: Sequence[ConfigSpace], micro_batching: MicroBatching) -> int:
    """Return the number of shards of the mini-batch from each of which a micro-batch takes a share.

    Micro-batch s of k holds, for each of P shards of the mini-batch, the s-th of its k shares, one after another, so
    that every part of the layers before takes its share from its own samples.  P is the degree of these layers in the
    sample dimension; 1 if layers with micro-batches read the data alone.  For P = 2 shards, k = 3 micro-batches and 12
    samples::

        shard        0                   1
        samples      0  1  2  3  4  5    6  7  8  9  10 11
        micro-batch  0  0  1  1  2  2    0  0  1  1  2  2

    Args:
        graph: The network, with any batch.
        spaces: For every layer the space that holds its one configuration.
        micro_batching: The micro-batches.

    Raises:
        ConfigError: The layers whose outputs are divided into micro-batches differ in that degree.
    """
    read = (
        sorted({e.producer for e in graph.edges if e.producer < micro_batching.first <= e.consumer})
        if micro_batching.parts > 1
        else []
    )
    degrees = {graph.layers[i].name: int(spaces[i].degrees[0, 0]) for i in read}
    if len(set(degrees.values())) > 1:
        raise ConfigError(f"layers read by micro-batches must have one degree in samples, got {degrees}")
    return next(iter(degrees.values()), 1)
