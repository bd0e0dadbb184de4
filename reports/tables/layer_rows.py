"""Rows of the tables of layers: configurations, bytes and times, as pages show them."""

from collections.abc import Sequence
from typing import Any

from planner.plan.comparison import LayerResult
from reports.style.device_lists import compact_devices
from reports.style.units import byte_unit, time_unit
from reports.tables.repeated_blocks import repeated_blocks


def layer_table(layers: Sequence[LayerResult]) -> dict[str, Any]:
    """Return the rows of the table of layers; all bars of time are scaled to the longest one.

    Of blocks that repeat in a long network the first has its rows; those of the others, which pages fold into one
    line, have the block as their ``run``.
    """
    keys = ("compute_s", "gradient_sync_s", "transfer_s")
    times = [getattr(layer, key) for layer in layers for key in keys]
    time, moved = time_unit(times), byte_unit([layer.moved_bytes for layer in layers])
    longest_s, most_bytes = max(times, default=0.0), max((layer.moved_bytes for layer in layers), default=0.0)
    rows: list[dict[str, Any]] = [
        {
            "layer": layer,
            "degrees": " × ".join(f"{dim} {degree}" for dim, degree in layer.degrees.items() if degree > 1) or "whole",
            "devices": compact_devices(layer.devices),
            "bars": [
                (getattr(layer, key), time.text(getattr(layer, key)), _share(getattr(layer, key), longest_s))
                for key in keys
            ]
            + [(layer.moved_bytes, moved.text(layer.moved_bytes), _share(layer.moved_bytes, most_bytes))],
            "gradient_sync": layer.gradient_sync.partition(", "),
            "run": None,
        }
        for layer in layers
    ]
    for block in repeated_blocks([(layer.name, _alike(layer)) for layer in layers]):
        for row in rows[block.folded]:
            row["run"] = block
    return {"time": time.name, "moved": moved.name, "rows": rows}


def _alike(layer: LayerResult) -> tuple[object, ...]:
    """Return what a layer has in common with those at its place in like blocks.

    That is all but its name, times and channels: blocks of a densely connected network differ in channels.
    """
    sizes = layer.output.split(" x ")
    scheme = layer.gradient_sync.partition(", ")[0]
    return layer.kind, *sizes[:1], *sizes[2:], *layer.degrees.items(), layer.devices, scheme


def _share(value: float, largest: float) -> str:
    return f"{100 * value / largest:.1f}" if largest > 0 else "0"
