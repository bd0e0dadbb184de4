"""The price of exchanging a layer's gradients among the replicas of its parameters."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.configurations import ConfigSpace
from planner.network import Network
from simulator.collectives import all_reduce

__all__ = ["exchange_s", "replica_groups"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def replica_groups(before: int, channel: int, after: int, devices: Ints, split: bool) -> Ints:
    """Devices that hold the same parameters, shape (groups, replicas).

    Args:
        before, channel, after: Product of the degrees before the channel dimension, its degree, product of
            those after; parts are numbered in that order.
        devices: Device of each part.
        split: Whether a split of the channel dimension splits the parameters.
    """
    if not split:
        return devices.reshape(1, -1)
    return devices.reshape(before, channel, after).transpose(1, 0, 2).reshape(channel, -1)


@dataclass(frozen=True, slots=True)
class _Unit:
    """An exchange per byte of one replica's parameters: the rounds, priced on the links."""

    busy_s_per_byte: Floats
    """Shape (R,): busiest link of each round, repeats included."""
    share: Floats
    repeats: Floats
    classes: tuple[Ints, ...]
    """Latency classes of each round's routes."""


@lru_cache(maxsize=65536)
def _unit(network: Network, scheme: str, shape: tuple[int, int, int], devices: bytes, split: bool) -> _Unit:
    groups = replica_groups(*shape, np.frombuffer(devices, dtype=np.int64), split)
    plans = all_reduce(scheme, groups.tolist(), network.node.tolist())
    busy, share, repeats, classes = [], [], [], []
    for steps in zip(*plans, strict=True):
        source = np.concatenate([step.source for step in steps])
        target = np.concatenate([step.target for step in steps])
        sent = np.full(len(source), steps[0].share * steps[0].repeats)
        busy.append(float((network.link_loads(source, target, sent) * network.seconds_per_byte).max()))
        share.append(steps[0].share)
        repeats.append(float(steps[0].repeats))
        classes.append(np.unique(network.latency_class[source * network.device_count + target]))
    return _Unit(np.array(busy), np.array(share), np.array(repeats), tuple(classes))


def exchange_s(
    network: Network, scheme: str, space: ConfigSpace, parameter_bytes: float, *, split: bool = True
) -> Floats:
    """Time to exchange gradients under every configuration of a space, nothing else running.

    The groups of replicas exchange at the same time; each round is one activity on all its links.

    Args:
        network: Routes of the cluster.
        scheme: A key of ``simulator.collectives.ALL_REDUCES``.
        space: C configurations of the layer.
        parameter_bytes: Size of the layer's parameters, all shards together.
        split: Whether a split of the channel dimension splits them.

    Returns:
        Seconds, shape (C,).
    """
    seconds = np.zeros(space.size)
    if parameter_bytes == 0:
        return seconds
    degrees = space.degrees
    before, after = degrees[:, 0].tolist(), degrees[:, 2:].prod(axis=1).tolist()
    for c, channel in enumerate(degrees[:, 1].tolist()):
        if before[c] * after[c] * (1 if split else channel) == 1:
            continue
        devices = space.devices[space.device_start[c] : space.device_start[c + 1]].tobytes()
        unit = _unit(network, scheme, (before[c], channel, after[c]), devices, split)
        size = parameter_bytes / (channel if split else 1)
        for r in range(len(unit.share)):
            wait = max(float(network.class_latency(k, unit.share[r] * size)) for k in unit.classes[r].tolist())
            seconds[c] += unit.repeats[r] * wait + unit.busy_s_per_byte[r] * size
    return seconds
