"""Strategies by name: rules, degrees such as ``data=4,filter=4``, files, and the names that a search stands behind."""

from collections.abc import Mapping
from pathlib import Path

from groundwork.errors import ConfigError
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.plugins.entry_points import load_plugin, naming_plugin, plugin_names
from planner.graph.computation_graph import ComputationGraph
from planner.layouts.configurations import ConfigSpace, Strategy, space_of
from planner.strategies.degrees import (
    SEARCHED_HYBRID,
    hint_for,
    hybrid_of,
    hybrid_strategy,
    is_hybrid,
    searched_words,
)
from planner.strategies.named_rules import ALIASES, NAMED, REDUCING
from planner.strategies.strategy_file import SUFFIXES, own_strategy, strategy_from_file

PIPELINE = "pipeline"
"""Name of the strategy that splits the mini-batch too; ``planner.search.pipeline_strategy`` makes it."""
SEARCHED = ("layerwise", SEARCHED_HYBRID)
"""Names of strategies that follow from no rule; ``planner.plan.plan`` searches them."""

_BUILT_IN = (*NAMED, *ALIASES, *REDUCING, PIPELINE, *SEARCHED)


def strategy_names() -> tuple[str, ...]:
    """Return every name on the command line, plug-ins' included.

    ``layerwise`` and ``hybrid`` are searched, and ``pipeline`` splits the mini-batch into micro-batches too.
    """
    return (*_BUILT_IN, *(name for name in plugin_names("strategies") if name not in _BUILT_IN))


def is_searched(name: str) -> bool:
    """Return True if a strategy follows from no rule, with the words of storage behind its name."""
    return name in SEARCHED or bool(searched_words(name))


def check_strategy(name: str) -> None:
    """Refuse the name of a strategy that is neither known, nor given by degrees, nor that of a file.

    Raises:
        ConfigError: It is none of these (the nearest name is given), or its degrees cannot be read.
    """
    if searched_words(name):
        return
    if name in _BUILT_IN or name.endswith(SUFFIXES):
        return
    if not is_hybrid(name):
        known = strategy_names()
        if name in known:
            return
        raise ConfigError(
            f"strategy must be one of {', '.join(known)} or a file, or degrees such as data=4,filter=4, "
            f"got {name!r}{hint_for(name, known)}"
        )
    hybrid_of(name)


def named_strategy(
    name: str, graph: ComputationGraph, device_count: int, cluster: DeviceGraph | None = None
) -> Strategy:
    """Return the strategy of that name, of those degrees (``data=4,filter=4``), or of the file of that path.

    Args:
        name: Name of a rule or of a plug-in, degrees, or path of a strategy file.
        graph: The network with its batch.
        device_count: Devices of the cluster.
        cluster: The cluster, whose topology the device groups of a strategy by degrees follow; None: devices are
            alike and taken in their order, and plug-ins, which may ask for it, are refused.

    Returns:
        A configuration for every layer.

    Raises:
        ConfigError: No such name or file, the strategy is one that is searched, or it is impossible with this batch
            or number of devices.
    """
    rule = (NAMED | REDUCING).get(ALIASES.get(name, name))
    if rule:
        return rule(graph, device_count)
    check_strategy(name)
    if name.endswith(SUFFIXES):
        return strategy_from_file(Path(name), graph, device_count)
    if name == PIPELINE:
        raise ConfigError(f"strategy must be one without micro-batches here, got {name}")
    if is_searched(name):
        raise ConfigError(f"strategy {name} follows from no rule: it is searched")
    if is_hybrid(name):
        return hybrid_strategy(hybrid_of(name), graph, device_count, cluster)
    return _from_plugin(name, graph, cluster)


def _from_plugin(name: str, graph: ComputationGraph, cluster: DeviceGraph | None) -> Strategy:
    """Return the strategy that a plug-in gives, as a mapping or a function, by the rules of ``own_strategy``."""
    given = load_plugin("strategies", name)
    if cluster is None:
        raise ConfigError(f"strategy must be one that is built in where no cluster is known, got {name!r}")
    with naming_plugin("strategies", name):
        if not isinstance(given, Mapping) and not callable(given):
            raise ConfigError(f"the entry point must name a mapping from layers, or a function, got {given!r}")
        return own_strategy(given, graph, cluster)


def spaces_of(graph: ComputationGraph, strategy: Strategy, device_count: int) -> list[ConfigSpace]:
    """Return, for every layer, the space that holds its one configuration.

    Args:
        graph: The network with its batch.
        strategy: A configuration for every layer.
        device_count: Devices of the cluster.

    Raises:
        ConfigError: A layer has no configuration, or one that does not fit it.
    """
    for layer in graph.layers:
        if layer.name not in strategy:
            raise ConfigError(f"strategy must give every layer a configuration, {layer.name} has none")
    return [space_of(layer, strategy[layer.name], device_count) for layer in graph.layers]
