"""Pages of a plan, linked to each other: one with strategy, cluster and memory, one with the timeline."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from groundwork.array_types import Ints
from reports.drawings.cluster_view import cluster_view
from reports.drawings.draw_network import strategy_drawing
from reports.drawings.plan_view import PlanView
from reports.pages.page_template import Links, rendered, write_page
from reports.pages.timeline_page import timeline_html
from reports.style.packing import pack_array, pack_json
from reports.style.units import byte_unit, memory_unit, tile
from reports.tables.layer_rows import layer_table
from simulator.timelines.timeline import resource_use

_PAGES = (("plan", "index.html"), ("timeline", "timeline.html"))
"""Names and files of the pages of a plan."""
_BINS = 200
_MOST_BUFFERS = 20


def write_plan_pages(view: PlanView, folder: Path) -> tuple[Path, ...]:
    """Write all pages of a plan into an existing folder, each whole or not at all.

    Raises:
        OSError: The folder does not exist or cannot be written.
    """
    plan, timeline = (folder / file for _, file in _PAGES)
    write_page(plan_html(view, links=_links("plan")), plan)
    write_page(timeline_html(view, links=_links("timeline")), timeline)
    return plan, timeline


def _links(here: str) -> Links:
    return tuple((name, "" if name == here else file) for name, file in _PAGES)


def plan_html(view: PlanView, *, links: Links = ()) -> str:
    """Return the page of strategy, cluster and memory as HTML; it draws in SVG and on a canvas, without Plotly."""
    memory, cluster = view.memory, view.program.cluster
    fullest, capacity = memory.fullest, cluster.devices[memory.fullest].usable_bytes
    view_of_cluster = cluster_view(cluster)
    stands_for = ("machines", "link_sets", "device_sets", "classes")
    drawn = {key: pack_json(view_of_cluster[key]) for key in stands_for}
    drawn["link_class"] = pack_array(view_of_cluster["link_class"])
    peak, unit = float(memory.peak_bytes[fullest]), memory_unit([capacity])
    drawing, table = strategy_drawing(view.program, view.layers), layer_table(view.layers)
    return rendered(
        "plan.html",
        headline=view.headline,
        draws=False,
        links=links,
        subject=view.subject,
        tiles=[*view.tiles, tile("peak memory", peak, memory_unit)],
        notes=view.notes,
        strategy=drawing,
        parts=_parts(drawing["strips"], table["rows"]),
        table=table,
        cluster=view_of_cluster,
        fullest=f"The fullest is {cluster.devices[fullest].name}: {memory_unit([peak]).full(peak)} of "
        f"{unit.full(capacity)} usable ({peak / capacity:.1%})",
        alive=_alive(view),
        data={"cluster": _use(view) | drawn, "memory": _memory(view)},
    )


def _parts(strips: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> list[tuple[bool, list[dict[str, Any]]]]:
    """Return the strips of the drawing, neighbours together where all of their layers are folded in the table."""
    parts = groupby(strips, key=lambda strip: all(rows[box["number"]]["run"] for box in strip["boxes"]))
    return [(folded, [*group]) for folded, group in parts]


def _alive(view: PlanView) -> dict[str, Any]:
    """Return the buffers of the fullest device at its peak, the largest first."""
    memory = view.memory
    rows = memory.alive(memory.fullest, memory.peak_time_s(memory.fullest))
    unit, left = memory_unit(rows["size_bytes"]), rows["size_bytes"][_MOST_BUFFERS:]
    shown = [
        (row["layer"], row["kind"], f"{row['count']:,}", unit.text(row["size_bytes"]))
        for row in rows.head(_MOST_BUFFERS).to_dict("records")
    ]
    more = f"and {len(left):,} more rows, {unit.full(float(left.sum()))} together" if len(left) else ""
    return {"unit": unit.name, "rows": shown, "more": more}


def _use(view: PlanView) -> dict[str, Any]:
    """Return the shares of links and devices in use over the steady iteration, to half a percent."""
    replay, cluster = view.replay, view.program.cluster
    use = replay.link_use(_BINS)
    edges = np.linspace(*replay.window_s, _BINS + 1)
    device, like = _devices(view)
    busy = resource_use(replay.program_graph.graph, replay.schedule, edges, len(cluster.links) + device)
    moved = byte_unit(use.moved_bytes)
    return {
        "bin_s": float(edges[1] - edges[0]),
        "bins": _BINS,
        "links": pack_json(list(use.links)),
        # rows of links that are used alike, and of devices that do the same
        "like": pack_array(use.like),
        "first": pack_array(np.unique(use.like, return_index=True)[1]),
        "device_like": pack_array(like),
        "moved": pack_json([moved.text(size) for size in use.moved_bytes.tolist()]),
        "moved_unit": moved.name,
        "share": pack_array(_half_percents(use.share)),
        "busy": pack_array(_half_percents(busy)),
        "mean": pack_array(_half_percents(use.share.mean(axis=1))),
        "mean_busy": pack_array(_half_percents(busy.mean(axis=1))),
    }


def _devices(view: PlanView) -> tuple[Ints, Ints]:
    """Return the devices that stand for all, and which of those each device of the cluster does the same as."""
    replicas, count = view.program.classes, len(view.program.cluster.devices)
    shown, like = np.unique(np.arange(count) if replicas is None else replicas.device_like, return_inverse=True)
    return shown, like


def _half_percents(share: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray((np.clip(share, 0, 1) * 200).round().astype(np.int64))


def _memory(view: PlanView) -> dict[str, Any]:
    """Return the steps of every device's memory in the steady iteration, the first at its begin."""
    memory, (begin, end) = view.memory, view.replay.window_s
    times, held, counts = [], [], []
    devices, (shown, like) = view.program.cluster.devices, _devices(view)
    alike = np.bincount(like).tolist()
    for device in shown.tolist():
        time_s, held_bytes = memory.of(device)
        first, last = np.searchsorted(time_s, [begin, end], side="right")
        at_first = held_bytes[first - 1] if first else memory.always_bytes[device]
        times.append(np.concatenate([[0.0], time_s[first:last] - begin]))
        held.append(np.concatenate([[at_first], held_bytes[first:last]]))
        counts.append(len(times[-1]))
    span_s = end - begin
    return {
        "span_s": span_s,
        "names": pack_json(
            [
                devices.names[device] + (f" and {count - 1:,} alike" if count > 1 else "")
                for device, count in zip(shown.tolist(), alike, strict=True)
            ]
        ),
        "capacity": pack_array(devices.of_each(lambda device: device.usable_bytes)[shown]),
        "count": pack_array(np.array(counts)),
        # a billionth of the span, and a KiB, are less than a pixel
        "time": pack_array(np.rint(np.concatenate(times) / span_s * 1e9).astype(np.int64)),
        "held_kib": pack_array(np.rint(np.concatenate(held) / 1024).astype(np.int64)),
        "fullest": int(like[memory.fullest]),
    }
