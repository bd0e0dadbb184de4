"""The exchange of gradients as codes: who encodes and decodes how much, in which rounds, at what price.

Sums are taken in floats wherever the scheme lets one device receive all that it sums; each decodes its own codes too,
so that all replicas add the same numbers.  With p replicas of a buffer of n numbers, and m = n / p rounded up:

* ``direct``: each encodes n, sends the codes to all others, decodes p n and adds them up.
* ``ps-spread``: each encodes the (p - 1) m numbers that others serve and sends each its piece; decodes the (p - 1) m
  that arrive for its own piece, adds them to it and encodes the m sums; sends these to all; decodes p m.
* ``ps``: all but the server encode n and send it; the server decodes (p - 1) n, adds them to its own n and encodes the
  sums; sends them to all; each decodes n.
* any other scheme, of plain floats only: each encodes n, the rounds sum numbers of that type, each decodes n.

Where a piece is smaller than m its message is taken to be as large as the others.
"""

from dataclasses import dataclass

import numpy as np

from hwprofiles import Ints
from planner.compression import AUTO, UNCOMPRESSED, Compressed, Compression, check_gradient_sync, can_synchronise
from planner.cost.all_reduce import Choice, all_reduce_s, considered, layer_choice, replica_groups
from planner.cost.applied_strategy import applied
from planner.cost.codec_time import GRADIENTS, CodecWork, codec_s
from planner.cost.cost_model import CostModel
from planner.parallel import ConfigSpace, Strategy

__all__ = [
    "CompressedAllReduce",
    "compressed_all_reduce",
    "compressed_choice",
    "compressed_choices",
    "gradient_sync_choices",
    "groups_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAllReduce:
    """How the p replicas of one buffer sum it; works have shape (p,), by rank."""

    buffer_bytes: float
    """Size of a buffer whose plain exchange has messages of the size of these."""
    before: CodecWork
    middle: CodecWork | None
    """Between the first round and the second, where the scheme has servers."""
    after: CodecWork


def compressed_all_reduce(kind: Compression, scheme: str, elements: int, replicas: int) -> CompressedAllReduce:
    """The sum of a buffer of so many numbers."""
    p, n = replicas, elements
    everyone, server, workers = np.ones(p, dtype=np.int64), np.arange(p) == 0, np.arange(p) > 0
    if scheme == "ps-spread":
        m = -(-n // p)
        return CompressedAllReduce(
            buffer_bytes=float(kind.compressed_bytes(m)) * p,
            before=_coding(kind, m, made=(p - 1) * everyone),
            middle=_coding(kind, m, made=everyone, read=(p - 1) * everyone, added=(p - 1) * everyone),
            after=_coding(kind, m, read=p * everyone, own=everyone),
        )
    size = float(kind.compressed_bytes(n))
    if scheme == "ps":
        return CompressedAllReduce(
            buffer_bytes=size,
            before=_coding(kind, n, made=everyone * workers),
            middle=_coding(kind, n, made=everyone * server, read=(p - 1) * server, added=(p - 1) * server),
            after=_coding(kind, n, read=everyone, own=everyone * server),
        )
    before = _coding(kind, n, made=everyone)
    if scheme == "direct":
        after = _coding(kind, n, read=p * everyone, own=everyone, added=(p - 1) * everyone)
        return CompressedAllReduce(buffer_bytes=size, before=before, middle=None, after=after)
    return CompressedAllReduce(
        buffer_bytes=size, before=before, middle=None, after=_coding(kind, n, read=everyone, own=everyone)
    )


def _coding(
    kind: Compression, elements: int, *, made: Ints | int = 0, read: Ints | int = 0, own: Ints | int = 0,
    added: Ints | int = 0,
) -> CodecWork:  # fmt: skip
    """Work in messages of so many numbers: written, read, of these their own, and added, by rank."""
    made, read, own, added = np.broadcast_arrays(made, read, own, added)
    size = kind.compressed_bytes(elements)
    compressed_bytes, read_bytes, own_bytes = ((count * size).astype(np.float64) for count in (made, read, own))
    return CodecWork(
        made=made, encoded=made * elements, compressed_bytes=compressed_bytes, read=read, decoded=read * elements,
        added=added * elements, read_bytes=read_bytes, own_bytes=own_bytes,
    )  # fmt: skip


def groups_of(model: CostModel, space: ConfigSpace, *, split: bool) -> Ints:
    """Devices that hold the same parameters, shape (groups, replicas), in a space of one configuration."""
    before, channel, after = space.shards[0].tolist()
    return replica_groups(model.network.rank, before, channel, after, space.devices, split)


def compressed_choice(model: CostModel, kind: Compression, space: ConfigSpace, elements: int, *, split: bool) -> Choice:
    """The scheme by which a buffer is exchanged as codes, in a space of one configuration, and its price.

    Args:
        model: Exchange scheme and prices.
        kind: The data type.
        space: Of the layer.
        elements: Numbers in all shards of the buffer.
        split: Whether a split of the channel dimension splits it.

    Raises:
        ConfigError: The model's scheme would have to sum codes.
    """
    check_gradient_sync(kind, model.gradient_sync)
    schemes = [model.gradient_sync]
    if model.gradient_sync == AUTO:
        schemes = [scheme for scheme in considered(model.network, space) if can_synchronise(kind, scheme)]
    prices = {scheme: _sum_s(model, kind, space, scheme, elements, split) for scheme in schemes}
    scheme = min(prices, key=lambda name: prices[name])
    price_s = prices.pop(scheme)
    other = min(prices, key=lambda name: prices[name], default="")
    return Choice(scheme=scheme, price_s=price_s, runner_up=other, runner_up_s=prices.get(other, 0.0))


def compressed_choices(model: CostModel, kind: Compression, index: int, space: ConfigSpace) -> list[Choice]:
    """How a layer exchanges its buffers as codes, those that a split of the channels splits, then the others."""
    parameters, choices = model.graph.layers[index].parameters, []
    for split in (True, False):
        elements = sum(p.elements for p in parameters if p.split is split)
        choices.append(compressed_choice(model, kind, space, elements, split=split))
    return choices


def _sum_s(model: CostModel, kind: Compression, space: ConfigSpace, scheme: str, elements: int, split: bool) -> float:
    """Seconds of all stages, one after another; in each, the groups of replicas work at the same time."""
    groups, shards = groups_of(model, space, split=split), int(space.shards[0, 1]) if split else 1
    if not elements or groups.shape[1] == 1:
        return 0.0
    total = compressed_all_reduce(kind, scheme, elements // shards, groups.shape[1])
    stages = [stage.tiled(len(groups)) for stage in (total.before, total.middle, total.after) if stage]
    codings_s = sum(float(codec_s(model, kind, GRADIENTS, groups.ravel(), stage).max()) for stage in stages)
    return codings_s + float(all_reduce_s(model.network, scheme, space, total.buffer_bytes * shards, split=split)[0])


def gradient_sync_choices(
    model: CostModel, strategy: Strategy, compressed: Compressed = UNCOMPRESSED
) -> dict[str, Choice]:
    """How every layer that exchanges gradients does so, where that was left to its size and place."""
    if model.gradient_sync != AUTO:
        return {}
    model, spaces, _ = applied(model, strategy)
    graph = model.graph
    found: dict[str, Choice] = {}
    for i, (layer, space) in enumerate(zip(graph.layers, spaces, strict=True)):
        kind = compressed.gradient(graph, i)
        if kind is None:
            choice = layer_choice(model.network, AUTO, layer, space, graph.element_bytes)
        else:
            choice = max(compressed_choices(model, kind, i, space), key=lambda choice: choice.price_s)
        if choice and choice.price_s:
            found[layer.name] = choice
    return found
