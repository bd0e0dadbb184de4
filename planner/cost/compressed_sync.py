"""Gradient synchronisation with compressed messages: work of the codecs, rounds, and their time.

Sums are taken in floats wherever the algorithm lets one device receive all that it sums; each device also decompresses
the messages that it compressed itself, so that all replicas add the same values.  With p replicas of a buffer of n
elements, and shards of m = n / p elements, rounded up:

* ``direct``: each compresses n, sends them to all others, decompresses p n and adds them up.
* ``ps-spread``: each is the server of one shard.  It compresses the (p - 1) m elements that others serve and sends each
  its shard; decompresses the (p - 1) m that arrive for its own shard, adds them to it and compresses the m sums; sends
  these to all; decompresses p m.
* ``ps``: all but the server compress n and send them; the server decompresses (p - 1) n, adds them to its own n and
  compresses the sums; sends them to all; each decompresses n.
* any other algorithm, of plain floats only: each compresses n, the rounds sum elements of that type, each decompresses
  n.

A last shard that is smaller than m counts as one of m.

Source: ``ps-spread``, in which every node sums one shard and compresses the sum again, is the exchange of Seide et al.,
"1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of Speech DNNs",
Interspeech 2014.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from groundwork.array_types import Ints
from planner.compression.data_types import Compression
from planner.compression.settings import (
    AUTO,
    LIBRARY,
    UNCOMPRESSED,
    CompressionSettings,
    can_synchronise,
    check_gradient_sync,
)
from planner.cost.all_reduce import SyncChoice, all_reduce_s, candidate_all_reduces, layer_choice, replica_groups
from planner.cost.codec_time import GRADIENTS, CodecWork, codec_s
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import ConfigSpace, Strategy
from planner.topology.network_routes import ClusterRoutes


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAllReduce:
    """Compressed all-reduce of one buffer by p replicas; codec work has shape (p,), by rank."""

    buffer_bytes: float
    """Bytes of a buffer whose uncompressed all-reduce has messages of the size of these."""
    before: CodecWork
    """Codec work before the first round."""
    middle: CodecWork | None
    """Codec work between the first round and the second, where the algorithm has servers."""
    after: CodecWork
    """Codec work after the last round."""


def compressed_all_reduce(kind: Compression, scheme: str, elements: int, replicas: int) -> CompressedAllReduce:
    """Return the codec work and message size of the all-reduce of one buffer.

    Args:
        kind: The data type.
        scheme: The all-reduce algorithm.
        elements: Elements of one replica's buffer.
        replicas: Number of replicas.
    """
    p, n = replicas, elements
    everyone, server, workers = np.ones(p, dtype=np.int64), np.arange(p) == 0, np.arange(p) > 0
    if scheme == "ps-spread":
        m = -(-n // p)
        return CompressedAllReduce(
            buffer_bytes=float(kind.compressed_bytes(m)) * p,
            before=_work(kind, m, compress=(p - 1) * everyone),
            middle=_work(kind, m, compress=everyone, decompress=(p - 1) * everyone, add=(p - 1) * everyone),
            after=_work(kind, m, decompress=p * everyone, own=everyone),
        )
    size = float(kind.compressed_bytes(n))
    if scheme == "ps":
        return CompressedAllReduce(
            buffer_bytes=size,
            before=_work(kind, n, compress=everyone * workers),
            middle=_work(kind, n, compress=everyone * server, decompress=(p - 1) * server, add=(p - 1) * server),
            after=_work(kind, n, decompress=everyone, own=everyone * server),
        )
    before = _work(kind, n, compress=everyone)
    if scheme == "direct":
        after = _work(kind, n, decompress=p * everyone, own=everyone, add=(p - 1) * everyone)
    else:
        after = _work(kind, n, decompress=everyone, own=everyone)
    return CompressedAllReduce(buffer_bytes=size, before=before, middle=None, after=after)


def _work(
    kind: Compression,
    elements: int,
    *,
    compress: Ints | int = 0,
    decompress: Ints | int = 0,
    own: Ints | int = 0,
    add: Ints | int = 0,
) -> CodecWork:
    """Return codec work in messages of one size.

    Args:
        kind: The data type.
        elements: Elements of a message.
        compress: Shape (p,): messages that each rank compresses.
        decompress: Shape (p,): messages that each rank decompresses.
        own: Shape (p,): those among them that it compressed itself.
        add: Shape (p,): those among them that it adds to others.
    """
    compress, decompress, own, add = np.broadcast_arrays(compress, decompress, own, add)
    size = kind.compressed_bytes(elements)
    compressed_bytes, decompressed_bytes, own_bytes = (
        (count * size).astype(np.float64) for count in (compress, decompress, own)
    )
    return CodecWork(
        compressed_messages=compress,
        compressed_elements=compress * elements,
        compressed_bytes=compressed_bytes,
        decompressed_messages=decompress,
        decompressed_elements=decompress * elements,
        added_elements=add * elements,
        decompressed_bytes=decompressed_bytes,
        own_bytes=own_bytes,
    )


def groups_of(model: CostModel, space: ConfigSpace, *, split: tuple[str, ...]) -> Ints:
    """Return the devices that hold the same parameters, shape (groups, replicas), for a space of one configuration.

    Args:
        model: Cluster.
        space: The layer's configuration.
        split: Dimensions of the layer's output that split the parameters.
    """
    return _groups_of(model.network, space.in_all, split)


@lru_cache(maxsize=64)
def _groups_of(network: ClusterRoutes, space: ConfigSpace, split: tuple[str, ...]) -> Ints:
    """Return ``groups_of``, read-only: a layer's gradients and its bucket ask for the same."""
    groups = replica_groups(network.rank, space.replica_grid(split)[0].tolist(), space.devices)
    groups.setflags(write=False)
    return groups


def compressed_choice(
    model: CostModel, kind: Compression, space: ConfigSpace, elements: int, *, split: tuple[str, ...]
) -> SyncChoice:
    """Choose the fastest algorithm for a compressed all-reduce, for a space of one configuration.

    Args:
        model: All-reduce algorithm and costs.
        kind: The data type.
        space: The layer's configuration.
        elements: Elements in all shards of the buffer.
        split: Dimensions of the layer's output that split the buffer.

    Raises:
        ConfigError: The model's algorithm would have to sum compressed messages.
    """
    check_gradient_sync(kind, model.gradient_sync)
    schemes = [model.gradient_sync]
    if model.gradient_sync == AUTO:
        schemes = [s for s in candidate_all_reduces(model.network, space) if can_synchronise(kind, s)]
    prices = {scheme: _all_reduce_s(model, kind, space, scheme, elements, split) for scheme in schemes}
    scheme = min(prices, key=lambda name: prices[name])
    price_s = prices.pop(scheme)
    other = min(prices, key=lambda name: prices[name], default="")
    return SyncChoice(scheme=scheme, price_s=price_s, runner_up=other, runner_up_s=prices.get(other, 0.0))


def compressed_choices(model: CostModel, kind: Compression, index: int, space: ConfigSpace) -> list[SyncChoice]:
    """Choose the algorithms for the gradient buffers of a layer.

    Args:
        model: All-reduce algorithm and costs.
        kind: The data type.
        index: The layer.
        space: Its configuration.

    Returns:
        The choice for each set of parameters that the same dimensions split.
    """
    layer, choices = model.graph.layers[index], []
    for split in layer.splits_of_parameters:
        elements = sum(p.elements for p in layer.parameters if p.split == split)
        choices.append(compressed_choice(model, kind, space, elements, split=split))
    return choices


def _all_reduce_s(
    model: CostModel, kind: Compression, space: ConfigSpace, scheme: str, elements: int, split: tuple[str, ...]
) -> float:
    """Compute the seconds of codec work and rounds, one after another; the groups of replicas work at the same time."""
    groups, shards = groups_of(model, space, split=split), int(space.shards(split)[0])
    if not elements or groups.shape[1] == 1:
        return 0.0
    total = compressed_all_reduce(kind, scheme, elements // shards, groups.shape[1])
    stages = [stage.tiled(len(groups)) for stage in (total.before, total.middle, total.after) if stage]
    codecs_s = sum(float(codec_s(model, kind, GRADIENTS, groups.ravel(), stage).max()) for stage in stages)
    return codecs_s + float(all_reduce_s(model.network, scheme, space, total.buffer_bytes * shards, split=split)[0])


def gradient_sync_choices(
    model: CostModel, strategy: Strategy, compressed: CompressionSettings = UNCOMPRESSED
) -> dict[str, SyncChoice]:
    """Return the algorithm that ``auto`` or a library chose for every layer that synchronises gradients.

    Args:
        model: All-reduce algorithm and costs.
        strategy: A configuration for every layer.
        compressed: Gradients that travel compressed.

    Returns:
        By name of the layer, the choice for the slower of its buffers; empty where the algorithm was given.
    """
    if model.gradient_sync not in (AUTO, LIBRARY):
        return {}
    graph, spaces = model.graph, model.spaces_of(strategy)
    choices: dict[str, SyncChoice] = {}
    for i, (layer, space) in enumerate(zip(graph.layers, spaces, strict=True)):
        kind = compressed.gradient(graph, i)
        if kind is None:
            choice = layer_choice(model.network, model.gradient_sync, layer, space, model.message_bytes)
        else:
            choices_of = compressed_choices(model, kind, i, space)
            choice = max(choices_of, key=lambda choice: choice.price_s, default=None)
        if choice and choice.price_s:
            choices[layer.name] = choice
    return choices
