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

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Floats, Ints
from groundwork.sparse_rows import counted, distinct, numbered, ranks_in_runs, row_entries
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import Edge
from planner.graph.data_sources import is_data
from planner.layouts.configurations import ConfigSpace
from planner.layouts.device_classes import MessageClasses
from planner.layouts.regions import TransferRegions, held_regions, needed_regions
from planner.lowering.batched_model import BatchedModel
from planner.lowering.lower_strategy import lower
from planner.lowering.program import Collective, Program
from planner.strategies.micro_batches import MicroBatching
from planner.strategies.recomputation import Recompute
from planner.topology.copy_engine_use import copy_engines_of
from planner.topology.network_routes import routes_of_cluster
from simulator.collectives.rounds import Round

_Colours = NDArray[np.uint64]
_Small = NDArray[np.int32]
"""Indices of which there are many millions."""
_MOST_MESSAGES = 10_000_000
"""Most messages of an iteration that are looked at: two all-to-alls of two thousand devices, forward and backward."""
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
    if model.graph.shared or model.conditions.storage.divides:
        return "parameters are shared or divided"
    if any(space.has_copies or space.completed[0] > 1 for space in spaces):
        return "devices of layers repeat a computation, or sum together"
    count = sum(model.transfer_times.message_count(spaces, layer) for layer in range(len(spaces)))
    if count > _MOST_MESSAGES:
        return f"more than {_MOST_MESSAGES:,} messages are not looked at, of which there are {count:,}"
    batched = BatchedModel(model, spaces, micro_batching)
    messages, sums = _Messages(batched), list[_GroupSums]()
    while True:
        classes = messages.classes(sums)
        if isinstance(classes, str):
            return classes
        program = lower(model, spaces, micro_batching=micro_batching, recompute=recompute, classes=classes)
        before, sums = sums, _sums_of(program)
        if all(each.fits(classes) for each in sums) and _are_apart(program):
            return program
        if before:
            return "sums of gradients load devices of a class unequally"


class _GroupSums:
    """What one round of a collective takes of links and devices in each of its groups, by byte of their buffers.

    Args:
        program: A program with the collective.
        rounds: The round in every group.
        lowered: Indices of the groups by what they were lowered as: the first of each stands for the others.
    """

    def __init__(self, program: Program, rounds: Sequence[Round], lowered: Sequence[Ints]) -> None:
        network, count = routes_of_cluster(program.cluster), len(program.cluster.devices)
        engines, self._lowered, self.groups = copy_engines_of(program.cluster), lowered, len(rounds)
        links, devices, self.alone = list[Ints](), list[Ints](), np.zeros(self.groups, dtype=np.uint64)
        taken, moved = list[Floats](), list[Floats]()
        for g, step in enumerate(rounds):
            traffic = step.traffic
            loads = network.link_loads(traffic.source, traffic.target, traffic.taken)
            columns: list[Floats] = [
                np.bincount(end, np.broadcast_to(step.share * times, end.shape), minlength=count).astype(np.float64)
                for end, times in ((step.source, step.repeats), (step.target, step.repeats + step.adds))
            ]
            counts, engine, busy = engines.of(traffic.source, traffic.target)
            on_engines = np.zeros(len(engines.names) + 1)  # the last is that of devices without one
            np.add.at(on_engines, engine, busy * np.repeat(traffic.taken, counts))
            columns += [on_engines[known] for known in engines.by_kind.values()]
            links.append(np.flatnonzero(loads))
            devices.append(np.flatnonzero(columns[0] + columns[1]))
            taken.append(loads[links[-1]])
            moved.append(np.column_stack(columns)[devices[-1]])
            latency_s = traffic.latency_s
            if latency_s is None:
                waits = np.sort(np.unique(network.latency_classes(step.source, step.target))).tolist()
            else:
                waits = [latency_s, traffic.copied_s_per_byte]
            self.alone[g] = _mixed(*_rounded(np.array([len(waits), step.repeats, step.share, *waits]))[:, None])[0]
        self.link, self.link_group = np.concatenate(links), np.repeat(np.arange(self.groups), [*map(len, links)])
        self.device, self.device_group = (
            np.concatenate(devices),
            np.repeat(np.arange(self.groups), [*map(len, devices)]),
        )
        self._taken, self._moved = np.concatenate(taken), np.concatenate(moved)
        self.link_take = _rounded(self._taken)
        self.device_take = _mixed(*map(_rounded, self._moved.T))

    def refined(self, number: int, device: _Colours, link: _Colours) -> tuple[_Colours, _Colours]:
        """Return what the groups tell apart of devices and links: to be mixed with their colours.

        Args:
            number: Number of the sum.
            device: Colour of each device.
            link: Colour of each link.
        """
        colour = _mixed(
            self.alone,
            np.int64(number),
            _summed(_mixed(device[self.device], self.device_take), self.device_group, self.groups),
            _summed(_mixed(link[self.link], self.link_take), self.link_group, self.groups),
        )
        at_devices, at_links = colour[self.device_group], colour[self.link_group]
        return (
            _summed(_mixed(at_devices, self.device_take), self.device, len(device)),
            _summed(_mixed(at_links, self.link_take), self.link, len(link)),
        )

    def fits(self, classes: MessageClasses) -> bool:
        """Return whether groups of one kind take the same, and load all links and devices of a class equally."""
        ends = (classes.link_like, self.link, self.link_group, self._taken[:, None])
        rows = (ends, (classes.device_like, self.device, self.device_group, self._moved))
        return all(self._fit(same, *columns) for same in self._lowered for columns in rows) and all(
            (self.alone[same] == self.alone[same[0]]).all() for same in self._lowered
        )

    def _fit(self, same: Ints, like: Ints, at: Ints, group: Ints, taken: Floats) -> bool:
        """Return whether groups take the same of classes, and together of each member of a class.

        Args:
            same: Groups.
            like: First of the class of each link, or device.
            at: Links, or devices, that groups use.
            group: Group that uses each.
            taken: What it takes of each, shape (uses, columns).
        """
        of = np.isin(group, same)
        at, group, taken = at[of], group[of], taken[of]
        for column in taken.T:
            together = np.bincount(at, column, minlength=len(like))
            if not np.allclose(together, together[like], rtol=1 / _DIGITS, atol=0.0):
                return False
            order = np.lexsort((column, like[at], group))
            if len(order) % len(same):
                return False
            kinds, values = like[at][order].reshape(len(same), -1), column[order].reshape(len(same), -1)
            owners = group[order].reshape(len(same), -1)
            if (kinds != kinds[0]).any() or (owners != owners[:, :1]).any():
                return False
            if not np.allclose(values, values[0], rtol=1 / _DIGITS, atol=0.0):
                return False
        return True


def _sums_of(program: Program) -> list[_GroupSums]:
    """Return the different rounds of collectives of a program, with what they take in each of their groups."""
    known = dict[tuple[Round, ...], tuple[Ints, ...]]()
    for kinds in _together(program):
        rounds = [step for each in kinds for step in (each.round, *each.others)]
        groups = np.array([g for each in kinds for g in each.place[2:]])
        # by the numbers of the groups, so that sums are equal however they were lowered
        ends, place = np.cumsum([0, *(1 + len(each.others) for each in kinds)]).tolist(), np.argsort(np.argsort(groups))
        same = tuple(place[begin:end] for begin, end in pairwise(ends))
        known.setdefault(tuple(rounds[i] for i in np.argsort(groups).tolist()), same)
    return [_GroupSums(program, rounds, same) for rounds, same in known.items()]


def _are_apart(program: Program) -> bool:
    """Return whether no two kinds of groups that sum together have devices of one class."""
    rows = [[device for each in kinds for device in each.devices] for kinds in _together(program)]
    return all(len(set(row)) == len(row) for row in rows)


def _together(program: Program) -> list[list[Collective]]:
    """Return the collectives of a program that are one round, by kinds of their groups."""
    rounds = dict[tuple[int, int], list[Collective]]()
    for task, each in program.collectives.items():
        rounds.setdefault((int(program.group[task]), int(program.micro_batch[task])), []).append(each)
    return list(rounds.values())


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
        self._device = _coloured(batched.model.cluster.devices.told_apart()[1])
        self._link = _coloured(batched.model.cluster.links.told_apart()[1])
        for i, space in enumerate(batched.spaces):
            self._compute(i, space)
        self._pairs, content = _gathered(self._sent(), self._count**2)
        """Pairs of devices that send to each other, in order, as of ``MessageClasses``."""
        self._source, self._target = np.divmod(self._pairs, self._count)
        self._counts, links, latency = self._network.passing_routes(self._source, self._target)
        self._links = links.astype(np.int32)
        self._start = np.cumsum(self._counts) - self._counts
        self._message = np.repeat(np.arange(len(self._pairs), dtype=np.int32), self._counts)
        """Message of each entry of ``_links``."""
        self._place = (np.arange(len(links)) - self._start[self._message]).astype(np.int32)
        """Place of each link in its route."""
        self._base = _mixed(content, latency)

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

    def _sent(self) -> Iterator[tuple[Ints, _Colours]]:
        """Yield pairs of devices, ``source * devices + target``, with a colour of what each sends in one message."""
        layouts: dict[tuple[int, bool, int], Edge] = {}
        for edge in (edge for edges in self._batched.graph.producers for edge in edges):
            times = self._batched.model_at(edge.consumer).transfer_times
            key = int(times.layouts(edge, self._batched.spaces_at(edge.consumer)[edge.consumer])[0])
            first = layouts.setdefault((edge.producer, self._batched.takes_micro_batches(edge.consumer), key), edge)
            if first == edge:
                yield from self._send(edge, 2 * len(layouts))
            self._regions[edge] = self._regions[first]

    def _send(self, edge: Edge, number: int) -> Iterator[tuple[Ints, _Colours]]:
        """Yield the messages of one layout, and those of its gradients, which go back: both are told apart."""
        spaces = self._batched.spaces_at(edge.consumer)
        producer, consumer = spaces[edge.producer], spaces[edge.consumer]
        regions = self._batched.model_at(edge.consumer).transfer_times.regions(edge, producer, consumer, in_turn=False)
        self._regions[edge] = regions
        source = producer.devices[regions.part]
        key, rank = source * self._count + regions.device, np.zeros(len(source), dtype=np.int64)
        if len(distinct(key)) < len(key):  # tells apart several between the same devices
            order = np.lexsort((*regions.low.T, key))
            rank[order] = ranks_in_runs(key[order])
        here, back = source == regions.device, regions.device * self._count + source
        colour = _mixed(rank, *(regions.high - regions.low).T)
        np.add.at(self._device, source[here], _mixed(colour[here], np.int64(number)))
        for pairs, kind in ((key, number), (back, number + 1)):
            yield pairs[~here], _mixed(colour[~here], np.int64(kind))

    def classes(self, sums: Sequence[_GroupSums]) -> MessageClasses | str:
        """Return the classes in which messages, devices and links fall.

        Args:
            sums: Collectives that tell devices and links apart.
        """
        if not len(self._source):
            return "no device sends to another"
        links = self._batched.model.cluster.links
        if links.of_each(lambda each: each.exclusive)[self._links].any():
            return "messages take turns on links that serve one at a time"
        message, device, link = self._refined(sums)
        device_like, link_like = _firsts(device), _firsts(link)
        _, first, of = np.unique(message, return_index=True, return_inverse=True)
        if len(first) * _LEAST_ALIKE > len(message):
            return "few devices send alike"
        counts = np.bincount(of)
        if not self._equitable(of, first, device_like, link_like):
            return "devices of a class send unequally"
        lowered = device_like == np.arange(self._count)
        kept: dict[int, TransferRegions] = {}
        for edge, regions in self._regions.items():
            if id(regions) not in kept:
                sender = self._batched.spaces_at(edge.consumer)[edge.producer].devices[regions.part]
                some = regions.take(lowered[sender] | lowered[regions.device])
                kept[id(regions)] = some.take(np.lexsort(some.low.T))
        return MessageClasses(
            device_like=device_like,
            link_like=link_like,
            pairs=self._pairs,
            class_of_pair=of,
            counts=counts,
            regions={edge: kept[id(regions)] for edge, regions in self._regions.items()},
        )

    def _refined(self, sums: Sequence[_GroupSums]) -> tuple[_Colours, _Colours, _Colours]:
        """Return colours of messages, devices and links that tell apart more, until their classes are equitable."""
        device, link = self._device, self._link
        known, longest, rows = 0, int(self._counts.max(initial=0)), self._place * np.int32(len(link)) + self._links
        while True:
            message = _mixed(self._base, device[self._source], device[self._target])
            if longest:
                at_place = _mixed(np.tile(link, longest), np.repeat(np.arange(longest), len(link)))
                message = _mixed(message, np.add.reduceat(at_place[rows], self._start))
            different = len(np.unique(device)) + len(np.unique(link))
            if different == known:
                return message, device, link
            known, sent = different, _mixed(message)
            device = _mixed(device, *(_summed(sent, end, self._count) for end in (self._source, self._target)))
            link = _mixed(link, _summed(sent[self._message], self._links, len(link)))
            for number, each in enumerate(sums):
                at_devices, at_links = each.refined(number, device, link)
                device, link = _mixed(device, at_devices), _mixed(link, at_links)

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
    keys, counts = counted(at * np.int64(classes) + of, len(like) * classes)
    row, met = np.divmod(keys, classes)
    start = np.searchsorted(row, np.arange(len(like) + 1))
    sizes, first = np.diff(start), start[:-1][like]
    if not np.array_equal(sizes, sizes[like]):
        return False
    like_entries = row_entries(first, sizes)
    return np.array_equal(met, met[like_entries]) and np.array_equal(counts, counts[like_entries])


def _firsts(colours: _Colours) -> Ints:
    """Return the first of each colour, for each."""
    _, first, of = np.unique(colours, return_index=True, return_inverse=True)
    return first[of]


def _gathered(sent: Iterable[tuple[Ints, _Colours]], size: int) -> tuple[Ints, _Colours]:
    """Return the different pairs of devices in order, and the sum of the colours of the messages of each.

    Args:
        sent: Pairs, each a number, and colours of messages.
        size: Number above all pairs.
    """
    pairs, colours = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.uint64)]
    for ends, colour in sent:
        pairs.append(ends)
        colours.append(colour)
    key = np.concatenate(pairs)
    first, of = numbered(key, size)
    return key[first], _summed(np.concatenate(colours), of, len(first))


def _summed(colours: _Colours, at: Ints | _Small, count: int) -> _Colours:
    """Return the sums of colours by where they are, which do not depend on their order."""
    sums = np.zeros(count, dtype=np.uint64)
    np.add.at(sums, at, colours)
    return sums


def _coloured(numbers: Ints) -> _Colours:
    """Return a colour for each number."""
    return _mixed(numbers.astype(np.uint64))


def _rounded(loads: Floats) -> _Colours:
    """Return a colour for each load, the same for loads that differ by rounding."""
    mantissa, exponent = np.frexp(loads)
    return _mixed(np.round(mantissa * _DIGITS).astype(np.int64).astype(np.uint64), exponent.astype(np.uint64))


def _mixed(first: NDArray[np.uint64] | Ints, *others: NDArray[np.uint64] | Ints | np.int64) -> _Colours:
    """Return a colour for each row of columns, or of one number in all rows: SplitMix64's finaliser, chained."""
    mixed = np.zeros(len(first), dtype=np.uint64)
    for column in (first, *others):
        mixed ^= column.astype(np.uint64)
        mixed += np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(30)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(27)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed
