"""Random device graphs, and transfers and exchanges priced slowly, from the graph's own routes."""

import itertools
from collections import defaultdict

import numpy as np

from hwprofiles.devices.device import Device
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.latency import Latency
from hwprofiles.devices.link import Link
from planner.layouts.regions import needed_regions
from planner.topology.network_routes import routes_of_cluster
from simulator.collectives.schemes import rank_rounds


def random_cluster(rng, *, shape):
    """Nested switches over devices: every edge with speeds of its own, some wires between devices beside.

    ``shape`` counts children at each level, outermost first.
    """
    count = int(np.prod(shape))
    edges, vertices, level = [], count, list(range(count))
    for children in reversed(shape):
        parents = list(range(vertices, vertices + len(level) // children))
        edges += [(child, parents[i // children]) for i, child in enumerate(level)]
        vertices, level = vertices + len(parents), parents
    edges += [tuple(rng.choice(count, 2, replace=False).tolist()) for _ in range(int(rng.integers(3))) if count > 1]
    kinds = [random_latency(rng) for _ in range(3)]
    alike = rng.random() < 0.5  # both directions of a link: as in real machines, or not
    links = []
    for number, (a, b) in enumerate(edges):
        both_ways = bool(rng.random() < 0.2)
        one, other = random_link(rng, kinds), random_link(rng, kinds)
        links.append(Link(name=f"{number} there", source=a, target=b, both_ways=both_ways, **one))
        if not both_ways:
            links.append(Link(name=f"{number} back", source=b, target=a, both_ways=False, **(one if alike else other)))
    devices = [Device(name=f"gpu{i}", node=i // shape[-1], profile="p100", memory_bytes=1e9) for i in range(count)]
    return DeviceGraph("random", devices, [f"switch{i}" for i in range(vertices - count)], links)


def random_latency(rng):
    """Constant, rising or falling with the size."""
    points = int(rng.integers(1, 4))
    sizes = np.sort(rng.choice(4096, points, replace=False)).astype(float)
    seconds = rng.integers(0, 20, points) * 1e-6
    return Latency(tuple(sizes.tolist()), tuple((np.sort(seconds) if rng.random() < 0.7 else seconds).tolist()))


def random_link(rng, kinds):
    bandwidth = float(rng.choice([1e9, 2e9, 5e9, 7e9]))
    kind = kinds[int(rng.integers(len(kinds)))]
    return {"bandwidth_bytes_per_s": bandwidth, "latency": kind, "exclusive": False, "link_class": "any"}


def messages_s(cluster, sizes):
    """Busiest link and longest latency of messages ``{(source, target): bytes}`` that start together."""
    load = dict.fromkeys(range(len(cluster.links)), 0.0)
    wait = 0.0
    for (source, target), size in sizes:
        for link in cluster.route(source, target):
            load[link] += size
        wait = max(wait, cluster.latency_s(source, target, size))
    return wait + max((size / cluster.links[link].bandwidth_bytes_per_s for link, size in load.items()), default=0.0)


def slow_transfer_s(model, edge, producer, consumer):
    """t_x of one pair of configurations (spaces of one), element by element."""
    source = model.graph.layers[edge.producer].output
    layer = model.graph.layers[edge.consumer]
    owner = np.zeros(source.sizes, dtype=np.int64)
    for element in itertools.product(*map(range, source.sizes)):
        part = 0
        for x, size, degree in zip(element, source.sizes, producer.degrees[0].tolist(), strict=True):
            part = part * degree + next(i for i in range(degree) if i * size // degree <= x < (i + 1) * size // degree)
        owner[element] = producer.devices[part]
    boxes = needed_regions(consumer, layer.operation.interval_maps(edge.slot, layer.input_shapes), source)
    sizes = []
    for low, high, here in zip(boxes.low.tolist(), boxes.high.tolist(), consumer.devices.tolist(), strict=True):
        inside = owner[tuple(slice(*ends) for ends in zip(low, high, strict=True))]
        held, elements = np.unique(inside, return_counts=True)
        moved = zip(held.tolist(), elements.tolist(), strict=True)
        sizes += [((there, here), count * model.graph.element_bytes) for there, count in moved if there != here]
    forward = messages_s(model.cluster, sizes)
    if not model.graph.has_gradient(edge.producer):
        return forward
    return forward + messages_s(model.cluster, [((b, a), size) for (a, b), size in sizes])


def slow_exchange_s(cluster, scheme, space, size_bytes, *, split):
    """Time of an exchange under one configuration: its rounds, message by message, of the parts of each shard."""
    rank, members = routes_of_cluster(cluster).rank, defaultdict(list)
    for device, place in zip(space.devices.tolist(), np.ndindex(*space.degrees[0]), strict=True):
        members[tuple(at for dim, at in zip(space.output.dims, place, strict=True) if dim in split)].append(device)
    groups = np.array([sorted(row, key=lambda device: rank[device]) for row in members.values()])
    shard = size_bytes / len(groups)
    seconds = 0.0
    nodes = np.array([device.node for device in cluster.devices])
    plans = rank_rounds(scheme, groups, nodes, np.zeros_like(nodes))
    rounds = [[step.among(group) for step in plan] for plan, group in zip(plans, groups, strict=True)]
    for steps in zip(*rounds, strict=True):
        pairs = [pair for step in steps for pair in zip(step.source.tolist(), step.target.tolist(), strict=True)]
        seconds += steps[0].repeats * messages_s(cluster, [(pair, steps[0].share * shard) for pair in pairs])
    return seconds
