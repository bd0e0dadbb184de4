"""Classes of messages between devices that do the same: all-to-alls of a thousand devices as a few dozen tasks.

Where layers are divided among devices in different ways, as fully connected layers by channels behind convolutions by
samples, each device sends to each.  Messages, devices and links fall into classes::

    two machines of two devices      class of messages       each device sends    members    task
    0 1 | 2 3, one network card      within a machine        1                    4          0 to 1
                                     between machines        2                    8          0 to 2

All messages of a class have one rate, since rates are max-min fair: one task stands for them, which takes of each link
what all of them take of one link of its class.  Classes are refined until they are equitable: each device of a class
sends and receives as many messages of each class, and as many cross each link of a class.  Colours are hashes; what
they find is then counted.

Source:
    Grohe, Kersting, Mladenov and Selman, "Dimension Reduction via Colour Refinement", ESA 2014.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Floats, Ints
from groundwork.sparse_rows import grouped_rows, ranks_in_runs
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import Edge
from planner.graph.data_sources import is_data
from planner.layouts.configurations import ConfigSpace
from planner.layouts.device_classes import MessageClasses
from planner.layouts.regions import TransferRegions, held_regions, needed_regions
from planner.lowering.batched_model import BatchedModel
from planner.lowering.lower_strategy import lower
from planner.lowering.program import Program
from planner.strategies.micro_batches import MicroBatching
from planner.strategies.recomputation import Recompute
from planner.topology.copy_engine_use import copy_engines_of
from planner.topology.network_routes import routes_of_cluster

_Colours = NDArray[np.uint64]
_Small = NDArray[np.int32]
"""Indices of which there are many millions."""
_MOST_DEVICES = 2048
"""Most devices between all pairs of which messages are looked at."""
_LEAST_ALIKE = 4
"""Messages of a class in the mean below which all devices are lowered."""
_DIGITS = 2.0**40
"""Loads that differ by less than this part of their power of two are equal but for rounding."""


def lower_by_messages(
    model: CostModel, spaces: Sequence[ConfigSpace], *, micro_batching: MicroBatching, recompute: Recompute
) -> Program | str:
    """Lower the first device of each class of those that do the same; arguments as for ``lower``.

    Returns:
        The program; or why all devices have to be lowered.
    """
    count = len(model.cluster.devices)
    if count > _MOST_DEVICES:
        return f"messages between all pairs of more than {_MOST_DEVICES:,} devices are not looked at"
    if model.graph.shared or model.conditions.storage.divides:
        return "parameters are shared or divided"
    if any(space.has_copies or space.completed[0] > 1 for space in spaces):
        return "devices of layers repeat a computation, or sum together"
    batched = BatchedModel(model, spaces, micro_batching)
    messages, loads = _Messages(batched), list[Floats]()
    while True:
        classes = messages.classes(loads)
        if isinstance(classes, str):
            return classes
        program = lower(model, spaces, micro_batching=micro_batching, recompute=recompute, classes=classes)
        if any(len(each.place) > 3 or each.others for each in program.collectives.values()):
            return "layers sum gradients in several groups"
        before, loads = loads, _loads(program)
        if all(_even(values, classes) for values in loads):
            return program
        if before:
            return "sums of gradients load devices of a class unequally"


def _loads(program: Program) -> list[Floats]:
    """Return what different rounds of collectives take of each link, or of each device, by byte of their buffers."""
    network, devices = routes_of_cluster(program.cluster), len(program.cluster.devices)
    engines, found = copy_engines_of(program.cluster), list[Floats]()
    for step in dict.fromkeys(each.round for each in program.collectives.values()):
        traffic = step.traffic
        found.append(network.link_loads(traffic.source, traffic.target, traffic.taken))
        for end, times in ((step.source, step.repeats), (step.target, step.repeats + step.adds)):
            moved = np.bincount(end, np.broadcast_to(step.share * times, end.shape), minlength=devices)
            found.append(moved.astype(np.float64))
        counts, engine, busy = engines.of(traffic.source, traffic.target)
        taken = np.bincount(engine, busy * np.repeat(traffic.taken, counts), minlength=len(engines.names))
        for known in engines.by_kind.values():
            if (known >= 0).any():
                found.append(np.where(known >= 0, taken[known], 0.0))
    return found


def _even(loads: Floats, classes: MessageClasses) -> bool:
    """Return whether links, or devices, of one class have equal loads."""
    like = classes.device_like if len(loads) == len(classes.device_like) else classes.link_like
    return bool(np.allclose(loads, loads[like], rtol=1 / _DIGITS, atol=0.0))


class _Messages:
    """The messages of a strategy between devices of a cluster, all that are between the same two as one.

    Args:
        batched: Costs and configurations.
    """

    def __init__(self, batched: BatchedModel) -> None:
        self._batched, self._network = batched, routes_of_cluster(batched.model.cluster)
        self._count = batched.device_count
        self._regions: dict[Edge, TransferRegions] = {}
        """Regions of each edge, in order; edges of one layout have one object."""
        self._content = np.zeros(self._count**2, dtype=np.uint64)
        """Colour of what each device sends to each."""
        self._device = _coloured(batched.model.cluster.devices.told_apart()[1])
        self._link = _coloured(batched.model.cluster.links.told_apart()[1])
        self.why = ""
        for i, space in enumerate(batched.spaces):
            self._compute(i, space)
        layouts: dict[tuple[int, bool, int], Edge] = {}
        for edge in (edge for edges in batched.graph.producers for edge in edges):
            times = batched.model_at(edge.consumer).transfer_times
            key = int(times.layouts(edge, batched.spaces_at(edge.consumer)[edge.consumer])[0])
            first = layouts.setdefault((edge.producer, batched.takes_micro_batches(edge.consumer), key), edge)
            if first == edge:
                self._send(edge, 2 * len(layouts))
            self._regions[edge] = self._regions[first]
        pairs = np.flatnonzero(self._content)
        self._source, self._target = np.divmod(pairs, self._count)
        self._counts, links, latency = self._network.passing_routes(self._source, self._target)
        self._links = links.astype(np.int32)
        self._start = np.cumsum(self._counts) - self._counts
        self._message = np.repeat(np.arange(len(pairs), dtype=np.int32), self._counts)
        """Message of each entry of ``_links``."""
        self._place = (np.arange(len(links)) - self._start[self._message]).astype(np.int32)
        """Place of each link in its route."""
        self._base = _mixed(self._content[pairs], latency)

    def _compute(self, i: int, space: ConfigSpace) -> None:
        """Tell devices apart by the part of a layer that they have, its time and the data that it reads."""
        layer, takes = self._batched.graph.layers[i], self._batched.spaces_at(i)[i]
        held = held_regions(takes)
        columns = [held.high - held.low]
        for slot in (slot for slot, source in enumerate(layer.inputs) if is_data(source)):
            maps, source = layer.operation.interval_maps(slot, layer.input_shapes), layer.input_shapes[slot]
            read = needed_regions(takes, maps, source)
            columns.append(read.high - read.low)
        times = self._batched.model_at(i).compute_times.part_s(i, takes)
        columns += [np.asarray(each_s, dtype=np.float64)[:, None].view(np.int64) for each_s in times.values()]
        colour = np.zeros(self._count, dtype=np.uint64)
        colour[space.devices] = _mixed(*np.concatenate(columns, axis=1).T)
        self._device = _mixed(self._device, colour)

    def _send(self, edge: Edge, number: int) -> None:
        """Take the messages of one layout, and those of its gradients, which go back; both are told apart."""
        spaces = self._batched.spaces_at(edge.consumer)
        producer, consumer = spaces[edge.producer], spaces[edge.consumer]
        regions = self._batched.model_at(edge.consumer).transfer_times.regions(edge, producer, consumer, in_turn=False)
        self._regions[edge] = regions
        source = producer.devices[regions.part]
        key, rank = source * self._count + regions.device, np.zeros(len(source), dtype=np.int64)
        if (np.bincount(key, minlength=len(self._content)) > 1).any():  # tells apart several between the same devices
            order = np.lexsort((*regions.low.T, key))
            rank[order] = ranks_in_runs(key[order])
        here, sizes = source == regions.device, (regions.high - regions.low).T
        back = regions.device * self._count + source
        for pair, kind in ((key, number), (back, number + 1)):
            np.add.at(self._content, pair[~here], _mixed(rank, np.full(len(rank), kind), *sizes)[~here])
        np.add.at(self._device, source[here], _mixed(rank, np.full(len(rank), number), *sizes)[here])

    def classes(self, loads: Sequence[Floats]) -> MessageClasses | str:
        """Return the classes in which messages, devices and links fall.

        Args:
            loads: What collectives take of each link, or of each device.
        """
        if not len(self._source):
            return "no device sends to another"
        links, devices = self._batched.model.cluster.links, self._count
        device, link = self._device, self._link
        for values in loads:
            if len(values) == devices:
                device = _mixed(device, _rounded(values))
            else:
                link = _mixed(link, _rounded(values))
        if links.of_each(lambda each: each.exclusive)[self._links].any():
            return "messages take turns on links that serve one at a time"
        message, device, link = self._refined(device, link)
        device_like, link_like = _firsts(device), _firsts(link)
        _, first, of = np.unique(message, return_index=True, return_inverse=True)
        if len(first) * _LEAST_ALIKE > len(message):
            return "few devices send alike"
        counts = np.bincount(of)
        if not self._equitable(of, first, device_like, link_like):
            return "devices of a class send unequally"
        message_class = np.full((devices, devices), -1)
        message_class[self._source, self._target] = of
        lowered = device_like == np.arange(devices)
        kept: dict[int, TransferRegions] = {}
        for edge, regions in self._regions.items():
            if id(regions) not in kept:
                sender = self._batched.spaces_at(edge.consumer)[edge.producer].devices[regions.part]
                some = regions.take(lowered[sender] | lowered[regions.device])
                kept[id(regions)] = some.take(np.lexsort(some.low.T))
        return MessageClasses(
            device_like=device_like,
            link_like=link_like,
            message_class=message_class,
            counts=counts,
            regions={edge: kept[id(regions)] for edge, regions in self._regions.items()},
        )

    def _refined(self, device: _Colours, link: _Colours) -> tuple[_Colours, _Colours, _Colours]:
        """Return colours of messages, devices and links that tell apart more, until their classes are equitable."""
        known, longest, rows = 0, int(self._counts.max(initial=0)), self._place * np.int32(len(link)) + self._links
        by_source, by_target = grouped_rows(self._source, self._count), grouped_rows(self._target, self._count)
        start, crossing = grouped_rows(self._links.astype(np.int64), len(link))
        by_link = start, self._message[crossing]
        while True:
            message = _mixed(self._base, device[self._source], device[self._target])
            if longest:
                at_place = _mixed(np.tile(link, longest), np.repeat(np.arange(longest), len(link)))
                message = _mixed(message, np.add.reduceat(at_place[rows], self._start))
            different = len(np.unique(device)) + len(np.unique(link))
            if different == known:
                return message, device, link
            known, sent = different, _mixed(message)
            device = _mixed(device, _summed(sent, *by_source), _summed(sent, *by_target))
            link = _mixed(link, _summed(sent, *by_link))

    def _equitable(self, of: Ints, first: Ints, device_like: Ints, link_like: Ints) -> bool:
        """Return whether classes are equitable, by counting.

        Args:
            of: Class of each message.
            first: First message of each class.
            device_like: First device of the class of each.
            link_like: First link of the class of each.
        """
        like, of_link, classes = link_like[self._links], of.astype(np.int32)[self._message], len(first)
        return (
            all(np.array_equal(device_like[end], device_like[end[first]][of]) for end in (self._source, self._target))
            and np.array_equal(self._counts, self._counts[first][of])
            and np.array_equal(like, like[self._start[first].astype(np.int32)[of_link] + self._place])
            and _even_counts(of, self._source, device_like, classes)
            and _even_counts(of, self._target, device_like, classes)
            and _even_counts(of_link, self._links, link_like, classes)
        )


def _even_counts(of: Ints | _Small, at: Ints | _Small, like: Ints, classes: int) -> bool:
    """Return whether devices, or links, of one class meet as many messages of each class of messages.

    Args:
        of: Class of each message, shape (K,).
        at: Device or link that each meets, shape (K,).
        like: First of the class of each device or link.
        classes: Number of classes of messages.
    """
    met = np.bincount(at * np.int64(classes) + of, minlength=len(like) * classes).reshape(len(like), classes)
    return np.array_equal(met, met[like])


def _firsts(colours: _Colours) -> Ints:
    """Return the first of each colour, for each."""
    _, first, of = np.unique(colours, return_index=True, return_inverse=True)
    return first[of]


def _summed(colours: _Colours, start: Ints, entries: Ints | _Small) -> _Colours:
    """Return the sums of colours of several rows, which do not depend on their order; 0 of none."""
    sums, some = np.zeros(len(start) - 1, dtype=np.uint64), np.flatnonzero(np.diff(start))
    if len(some):
        sums[some] = np.add.reduceat(colours[entries], start[some])
    return sums


def _coloured(numbers: Ints) -> _Colours:
    """Return a colour for each number."""
    return _mixed(numbers.astype(np.uint64))


def _rounded(loads: Floats) -> _Colours:
    """Return a colour for each load, the same for loads that differ by rounding."""
    mantissa, exponent = np.frexp(loads)
    return _mixed(np.round(mantissa * _DIGITS).astype(np.int64).astype(np.uint64), exponent.astype(np.uint64))


def _mixed(*columns: NDArray[np.uint64] | Ints) -> _Colours:
    """Return a colour for each row of columns: the finaliser of SplitMix64, chained over them."""
    mixed = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        mixed ^= column.astype(np.uint64)
        mixed += np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(30)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(27)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed
