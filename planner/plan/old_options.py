"""Keyword options of ``make_plan`` that were renamed or took objects: they work for one version, with a warning."""

from collections.abc import Callable, Mapping
from typing import Any

from hwprofiles.old_keywords import warn_old_name
from planner.compression.settings import CompressionSettings
from planner.graph.computation_graph import ComputationGraph
from planner.parallel.micro_batches import MicroBatching
from planner.search.pipeline_strategy import Pipeline

_Fields = dict[str, Any]


def renamed_options(graph: ComputationGraph, options: Mapping[str, Any]) -> _Fields:
    """Return keyword options as fields of ``PlanRequest``, and warn of each that is an old one.

    Args:
        graph: The network, whose layers an object may number.
        options: Keyword options of ``make_plan``.
    """
    fields: _Fields = {}
    for name, value in options.items():
        translate = _TRANSLATIONS.get(name)
        if translate is None:
            fields[name] = value
            continue
        given = translate(graph, value)
        warn_old_name(f"make_plan: {name} is now given as {', '.join(given) or 'options of PlanRequest'}", depth=2)
        fields |= given
    return fields


def _micro_batching_fields(graph: ComputationGraph, value: MicroBatching) -> _Fields:
    """Return the fields of a request that stand for an object that describes micro-batches of the last layers."""
    if value.parts == 1:
        return {}
    return {
        "sub_batches": value.parts,
        "sub_batch_from": graph.layers[value.first].name,
        "sub_batch_order": value.order,
        "update_each": value.update_each,
    }


def _pipeline_fields(graph: ComputationGraph, value: Pipeline | None) -> _Fields:
    """Return the fields of a request that stand for an object that describes a pipeline."""
    names = ("stages", "micro_batches", "schedule", "stage_at")
    return {name: getattr(value, name) for name in names} if value else {}


def _compression_fields(graph: ComputationGraph, value: CompressionSettings) -> _Fields:
    """Return the fields of a request that stand for an object that describes compression."""
    return {
        "compress_gradients": value.gradients,
        "compress_activations": value.activations,
        "gradient_layers": value.gradient_layers,
        "activation_layers": value.activation_layers,
    }


_TRANSLATIONS: Mapping[str, Callable[[ComputationGraph, Any], _Fields]] = {
    "exchange": lambda graph, value: {"gradient_sync": value},
    "exchange_order": lambda graph, value: {"gradient_sync_order": value},
    "cut": _micro_batching_fields,
    "micro_batching": _micro_batching_fields,
    "pipeline": _pipeline_fields,
    "compressed": _compression_fields,
    "where_it_pays": lambda graph, value: {"compress_where": "pays" if value else "all"},
}
