"""Transfer times of single strategies: from tables or, on clusters too large for those, message by message."""

from collections.abc import Sequence

import numpy as np

from groundwork.array_types import Floats
from planner.compression.data_types import Compression
from planner.compression.settings import UNCOMPRESSED, CompressionSettings
from planner.cost.codec_time import ACTIVATIONS, codec_s, compression_of, decompression_of
from planner.cost.cost_model import CostModel
from planner.cost.transfer_time import EdgeTable
from planner.graph.computation_graph import Edge
from planner.layouts.configurations import ConfigSpace
from planner.simulation.execution_models import ITERATIONS
from simulator.graph.memory_need import check_replay_memory, engine_bytes, graph_bytes

_INTERFERING = 2
"""Devices whose memory a message uses beside its links, where that is taken into account."""
_LOWERED_BYTES = 400
"""Least memory of a message and its dependencies while a strategy is lowered."""
_USE_S = 3e-6
"""Processor time of a message for each link that it uses, all iterations together: measured with 256 GPUs."""
_FEW = 1_000_000
"""Pairs of parts up to which messages need not be counted."""


def transfer_prices(model: CostModel, compressed: CompressionSettings = UNCOMPRESSED) -> EdgeTable:
    """Return the function of the transfer time t_x (Eq. 1) between one configuration of producer and consumer each.

    Compressed messages, whose sizes need not be proportional to their elements, are timed one by one.

    Args:
        model: Costs of a network on a cluster.
        compressed: Compression settings.

    Returns:
        Function from an edge and two spaces of one configuration to a table of one entry, seconds.

    Source:
        Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Eq. 1.
    """
    known: dict[tuple[object, ...], Floats] = {}

    def price(edge: Edge, producer: ConfigSpace, consumer: ConfigSpace) -> Floats:
        """Return the transfer time of an edge, from the tables if they can be used; shape (1, 1)."""
        shared = edge in model.graph.shared
        kind = None if shared else compressed.activation(model.graph, edge.producer)
        if kind is None:
            return model.transfer_times.table(edge, producer, consumer)
        key = (kind, model.graph.has_gradient(edge.producer), *model.transfer_times.key(edge, producer, consumer))
        if key not in known:  # the blocks of a transformer have equal edges
            known[key] = _by_message(model, kind, edge, producer, consumer)
        return known[key]

    return price


def _by_message(
    model: CostModel, kind: Compression, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace
) -> Floats:
    """Return the transfer time of an edge with compressed messages, forward and backward; shape (1, 1)."""
    regions = model.transfer_times.regions(edge, producer, consumer)
    regions = regions.take(producer.devices[regions.part] != regions.device)
    ends = producer.devices[regions.part], regions.device
    elements = (regions.high - regions.low).prod(axis=1)
    size = kind.compressed_bytes(elements) * 1.0
    seconds = 0.0
    if len(elements):
        for source, target in (ends, ends[::-1])[: 1 + model.graph.has_gradient(edge.producer)]:
            seconds += model.transfer_times.messages_s(source, target, size)
            for work in (compression_of(kind, source, regions), decompression_of(kind, target, regions)):
                seconds += float(codec_s(model, kind, ACTIVATIONS, *work).max())
    return np.array([[seconds]])


def check_messages(model: CostModel, spaces: Sequence[ConfigSpace]) -> None:
    """Refuse a strategy whose transfers alone take more memory than this machine has or than may be taken unasked.

    Args:
        model: Costs of a network on a cluster.
        spaces: For every layer the space that holds its one configuration.

    Raises:
        InfeasiblePlanError: The transfers of a few iterations take more memory than that; with the estimate.
    """
    most = sum(int(spaces[edge.producer].parts[0] * spaces[edge.consumer].parts[0]) for edge in model.graph.edges)
    if most > _FEW:
        messages = sum(model.transfer_times.message_count(spaces, u) for u in range(len(spaces)))
        uses = (
            len(model.network.route(0, model.network.device_count - 1)) + _INTERFERING * model.conditions.interference
        )
        counts = {"tasks": messages * ITERATIONS, "uses": messages * ITERATIONS * uses, "dependencies": 0}
        needed_bytes = messages * _LOWERED_BYTES + graph_bytes(**counts) + engine_bytes(**counts, engine="compiled")
        subject = f"simulating {messages:,} transfers an iteration"
        check_replay_memory(needed_bytes, subject, takes_s=messages * uses * _USE_S)
