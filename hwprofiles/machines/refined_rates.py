"""Classes of links with the rates that were measured between pairs of GPUs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from groundwork.units import BITS_PER_BYTE, GIGA, MICRO
from hwprofiles.catalogue.cluster_catalogue import cluster_of_content
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.machines.cluster_content import rounded
from hwprofiles.readers.facts import PairRates

_ROUNDS = 3
"""Routes depend on rates: they are looked up anew after each round."""
_ALIKE = 0.8
"""Share of a class's fastest pair from which a pair is taken to be bounded by the class."""
_TOO_FAR = 2.0
"""Factor between measured and possible rates from which the files contradict each other."""
_PRIOR = 0.1
"""Weight of latencies before the measurement, relative to one pair."""


def with_measured_rates(content: Mapping[str, Any], pairs: PairRates) -> dict[str, Any]:
    """Return the content of a cluster file whose classes of links have measured rates and latencies.

    A pair is as fast as the slowest link of its route, so a class is at least as fast as every pair that crosses it.
    Classes that no pair crosses, or that bound none, keep their rates; latencies are the least squares of all pairs.

    Raises:
        ConfigError: The numbers of GPUs differ, or a pair is twice as fast, or half as fast, as its links can be.
    """
    result = {**content, "link_classes": {name: dict(row) for name, row in content["link_classes"].items()}}
    classes = result["link_classes"]
    measured = np.array(pairs.bytes_per_s)
    for _ in range(_ROUNDS):
        graph = cluster_of_content(result, "cluster")
        cable = _cable_rates(result)
        crossed = _crossed(graph, cable, measured, pairs.origin)
        prior = {name: rate for name, rate in cable.items() if any(name in row for row in crossed.values())}
        for name, rate in _fitted_rates(crossed, measured, prior).items():
            classes[name].pop("bandwidth_gbit_per_s", None)
            classes[name]["bandwidth_gbyte_per_s"] = rounded(rate / GIGA)
    _check_nvlinks(content, result, pairs.origin)
    _check(graph := cluster_of_content(result, "cluster"), measured, pairs.origin)
    if pairs.latency_s is not None:
        for name, latency_s in _fitted_latencies(graph, np.array(pairs.latency_s)).items():
            classes[name].pop("latency_table", None)
            classes[name]["latency_us"] = rounded(latency_s / MICRO)
    return result


def _crossed(
    graph: DeviceGraph, cable: Mapping[str, float], measured: Floats, origin: str
) -> dict[tuple[int, int], dict[str, float]]:
    """Return the cables of each class at the thinnest place of the route between each two GPUs of the first machine."""
    devices = [i for i, device in enumerate(graph.devices) if device.node == graph.devices[0].node]
    if len(devices) != len(measured):
        raise ConfigError(f"contradiction: a machine has {len(devices)} GPUs, {origin} shows {len(measured)}")
    found: dict[tuple[int, int], dict[str, float]] = {}
    for a in range(len(devices)):
        for b in range(len(devices)):
            if a == b:
                continue
            row = found.setdefault((a, b), {})
            for i in graph.route(devices[a], devices[b]):
                link = graph.links[i]
                cables = link.bandwidth_bytes_per_s / cable[link.link_class]
                row[link.link_class] = min(row.get(link.link_class, cables), cables)
    return found


def _cable_rates(content: Mapping[str, Any]) -> dict[str, float]:
    """Return the bandwidth of one cable of each class, with the defaults of parameters."""
    rates = {}
    for name, row in content["link_classes"].items():
        gbyte, gbit = row.get("bandwidth_gbyte_per_s"), row.get("bandwidth_gbit_per_s")
        value = gbyte if gbyte is not None else gbit
        number = content["parameters"][value]["default"] if isinstance(value, str) else value
        rates[name] = number * GIGA / (1 if gbyte is not None else BITS_PER_BYTE)
    return rates


def _fitted_rates(
    crossed: Mapping[tuple[int, int], Mapping[str, float]], measured: Floats, prior: Mapping[str, float]
) -> dict[str, float]:
    """Return the rate of a cable of each class."""
    rates = {}
    for name in prior:
        shares = np.array([measured[pair] / row[name] for pair, row in crossed.items() if name in row])
        rates[name] = float(np.median(shares[shares >= _ALIKE * shares.max()]))
    # A class that bounds no pair may be faster than any pair shows.
    for name, before in sorted(prior.items(), key=lambda item: -item[1]):
        if before <= rates[name]:
            continue
        with_it = {**rates, name: before}
        if _error(crossed, measured, with_it) <= _error(crossed, measured, rates) * 1.02 + 1e-6:
            rates[name] = before
    return rates


def _error(
    crossed: Mapping[tuple[int, int], Mapping[str, float]], measured: Floats, rates: Mapping[str, float]
) -> float:
    """Return the mean error of the logarithms of all pairs' rates."""
    possible = [min(rates[name] * cables for name, cables in row.items()) for row in crossed.values()]
    return float(np.abs(np.log(np.array(possible) / np.array([measured[pair] for pair in crossed]))).mean())


def _check_nvlinks(before: Mapping[str, Any], after: Mapping[str, Any], origin: str) -> None:
    """Raise where NVLinks would be far slower or faster than those of their generation."""
    old, new = _cable_rates(before), _cable_rates(after)
    for name in old:
        if name.startswith("nvlink") and not 1 / _TOO_FAR < new[name] / old[name] < _TOO_FAR:
            raise ConfigError(
                f"contradiction: {origin} shows {new[name] / GIGA:.3g} GB/s over each {name}, which usually carries"
                f" {old[name] / GIGA:.3g}"
            )


def _check(graph: DeviceGraph, measured: Floats, origin: str) -> None:
    """Raise where a pair is far from what its links carry."""
    for a, row in enumerate(measured):
        for b, rate in enumerate(row):
            if a == b:
                continue
            route = [graph.links[i] for i in graph.route(a, b)]
            possible = min(link.bandwidth_bytes_per_s for link in route)
            if not 1 / _TOO_FAR < rate / possible < _TOO_FAR:
                thinnest = min(route, key=lambda link: link.bandwidth_bytes_per_s).link_class
                raise ConfigError(
                    f"contradiction: {origin} shows {rate / GIGA:.3g} GB/s from GPU{a} to GPU{b}, whose route over"
                    f" {thinnest} carries {possible / GIGA:.3g} elsewhere"
                )


def _fitted_latencies(graph: DeviceGraph, measured: Floats) -> dict[str, float]:
    """Return the latency of a link of each class that pairs cross."""
    from scipy.optimize import nnls  # imported here, as it takes long to load

    pairs = [(a, b) for a in range(len(measured)) for b in range(len(measured)) if a != b]
    routes = [[graph.links[i] for i in graph.route(a, b)] for a, b in pairs]
    names = list(dict.fromkeys(link.link_class for route in routes for link in route))
    before = {link.link_class: link.latency.seconds[0] for route in routes for link in route}
    counts = np.array(
        [[sum(link.link_class == name for link in route) for name in names] for route in routes], dtype=np.float64
    )
    weights = _PRIOR * np.eye(len(names))
    target = np.concatenate([[measured[pair] for pair in pairs], _PRIOR * np.array([before[name] for name in names])])
    fitted, _ = nnls(np.concatenate([counts, weights]), target / MICRO)
    return dict(zip(names, (fitted * MICRO).tolist(), strict=True))
