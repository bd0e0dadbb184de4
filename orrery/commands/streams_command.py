"""``orrery streams``: what sub-tasks on streams with priorities bring on one device."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hwprofiles import Progress
from orrery.terminal import (
    Batch,
    Exchange,
    Json,
    Model,
    left_out,
    print_json,
    print_rich,
    print_table,
    progress_bar,
    whole_file,
)

if TYPE_CHECKING:
    from executor.streams import MeasuredStreams
    from planner.graph import ComputationGraph
    from studies.streams import ManyDevices, StreamComparison

__all__ = ["streams"]

_ROUNDS = 5

Schedules = Annotated[
    str, typer.Option(metavar="S,S,...", help="Schedules, separated by commas; gains are over the first.")
]
Reading = Annotated[
    Literal["geometry", "throughput"],
    typer.Option(help="What a kernel keeps from others: the room of its blocks, or only what its speed asks for."),
]
Alpha = Annotated[int | None, typer.Option(metavar="A", help="Priority of weight gradients below their layer path.")]
Beta = Annotated[int | None, typer.Option(metavar="B", help="Priority of bias gradients below their layer path.")]
Method = Annotated[
    Literal["auto", "levels", "queue", "synchronisation"],
    typer.Option(help="How priorities reach a device; auto: by its levels, or the faster of the other two."),
]
MaxStreams = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Streams that may be used; else what the device runs.")
]
_Rounds = Annotated[
    int | None, typer.Option(min=1, metavar="R", help="With --run: measured steps of each schedule; else 5.")
]
HoldMib = Annotated[float | None, typer.Option(metavar="MIB", help="Most that delayed weight gradients may hold.")]
ManyCluster = Annotated[
    str, typer.Option(metavar="C", help="In place of a device: data-parallel on all devices of a cluster.")
]
Tries = Annotated[
    int, typer.Option(min=0, metavar="N", help="With --cluster: layers whose gradients are placed one by one.")
]
Cores = Annotated[int | None, typer.Option(min=1, metavar="K", help="With --run: cores to use; else all.")]
CriticalCores = Annotated[
    int | None, typer.Option(min=1, metavar="K", help="With --run: cores of a critical sub-task; else half.")
]


def streams(
    model: Model,
    *,
    batch: Batch,
    device: Annotated[str, typer.Option(metavar="D", help="Compute profile, such as p100, or file.")] = "p100",
    schedules: Schedules = "one-stream,layers,asynchronous,critical-path",
    occupancy: Reading = "geometry",
    alpha: Alpha = None,
    beta: Beta = None,
    method: Method = "auto",
    max_streams: MaxStreams = None,
    hold_mib: HoldMib = None,
    cluster: ManyCluster = "",
    gradient_sync: Exchange = "ring",
    tries: Tries = 16,
    run: Annotated[
        bool, typer.Option("--run", help="Run them on this machine's cores, beside the prediction.")
    ] = False,
    cores: Cores = None,
    critical_cores: CriticalCores = None,
    rounds: _Rounds = None,
    html: Annotated[Path | None, typer.Option(metavar="PAGE", help="Page to write.")] = None,
    json: Json = False,
) -> None:
    """Compare schedules of the backward pass: one stream, barriers between layers, asynchronous, critical paths."""
    from hwprofiles import ConfigError
    from planner.models import load_model
    from studies.streams import PathOptions

    of_device = {"max_streams": max_streams, "cores": cores, "critical_cores": critical_cores}
    if cluster:
        left_out("with --cluster", run=run or None, html=html, alpha=alpha, beta=beta, hold_mib=hold_mib, **of_device)
    elif run:
        left_out("with --run, whose streams are threads", max_streams=max_streams)
    else:
        left_out("without --run", cores=cores, critical_cores=critical_cores, rounds=rounds)
    if hold_mib is not None and not hold_mib >= 0:  # NaN neither
        raise ConfigError(f"hold_mib must be >= 0, got {hold_mib:g}")
    asked: dict[str, Any] = {
        "schedules": tuple(name.strip() for name in schedules.split(",")),
        "options": PathOptions(alpha=alpha, beta=beta, method=method),
        "hold_bytes": None if hold_mib is None else hold_mib * 2**20,
    }
    with whole_file(html) if html else nullcontext() as page, progress_bar(model) as progress:
        graph = load_model(model, batch=batch)
        if cluster:
            answer = _many(
                graph, cluster, gradient_sync=gradient_sync, reading=occupancy, tries=tries, progress=progress
            )
        elif run:
            asked |= {"cores": cores, "critical_cores": critical_cores, "rounds": rounds or _ROUNDS}
            answer = _measured(graph, page, progress=progress, **asked)
        else:
            asked |= {"device": device, "reading": occupancy, "max_streams": max_streams}
            answer = _simulated(graph, page, progress=progress, **asked)
    if json:
        return print_json(answer.values)
    answer.show()
    if html:
        print(f"page: {html}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What was found, for programs and for people."""

    values: dict[str, Any]
    show: Callable[[], None]


def _many(graph: "ComputationGraph", cluster: str, **asked: Any) -> _Answer:
    """Arrangements of the gradients and their exchanges on all devices of a cluster."""
    from hwprofiles.catalogue import load_cluster
    from studies.streams import arrange

    rows = _many_rows(arrange(graph, load_cluster(cluster), **asked))
    values = {"model": graph.name, "cluster": cluster, "batch": graph.batch, "rows": rows}
    return _Answer(values=values, show=lambda: _show_many(rows))


def _measured(graph: "ComputationGraph", page: Path | None, **asked: Any) -> _Answer:
    """The schedules run on the cores of this machine."""
    from executor.streams import as_comparison, measure_streams, measured_values
    from reports.pages import write_streams_page

    found = measure_streams(graph, **asked)
    if page:
        write_streams_page(as_comparison(found), page)
    return _Answer(values=measured_values(found), show=lambda: _show_measured(found))


def _simulated(graph: "ComputationGraph", page: Path | None, *, progress: Progress | None, **asked: Any) -> _Answer:
    """The schedules simulated on a device."""
    from reports.pages import write_streams_page
    from studies.streams import StreamRequest, compare_schedules

    found = compare_schedules(StreamRequest(graph=graph, **asked), progress)
    if page:
        write_streams_page(found, page)
    return _Answer(values=_values(found), show=lambda: _show(found))


def _values(found: "StreamComparison") -> dict[str, Any]:
    names = (
        "name",
        "method",
        "iteration_s",
        "streams",
        "labels",
        "occupancy",
        "gradient_end_s",
        "held_bytes",
        "bound_s",
    )
    return {
        **{name: getattr(found, name) for name in ("model", "batch", "device", "reading", "layer_paths", "blocks")},
        "schedules": [
            {**{name: getattr(row, name) for name in names}, "gain": found.gain(row)} for row in found.results
        ],
        "notes": found.notes,
    }


def _show(found: "StreamComparison") -> None:
    from reports.pages import streams_headline, streams_table

    print_rich(streams_table(found))
    print("\n".join([streams_headline(found), *found.notes]))


def _show_measured(found: "MeasuredStreams") -> None:
    rows = [
        {
            "schedule": row.name,
            "step [ms]": f"{row.step_s * 1e3:.1f}",
            "quartiles": " to ".join(f"{value * 1e3:.1f}" for value in row.quartiles_s),
            "gain": f"{row.gain:.3f}",
            "predicted [ms]": f"{row.predicted_s * 1e3:.1f}",
            "error": f"{row.error:+.1%}",
            "cores": f"{row.threads[0]} + {row.threads[1]}" if row is not found.results[0] else str(found.cores),
            "held [MiB]": f"{row.held_bytes / 2**20:.1f}",
        }
        for row in found.results
    ]
    print_table(rows)


def _many_rows(found: "ManyDevices") -> list[dict[str, Any]]:
    return [
        {
            "arrangement": row.name,
            "gradient_sync": row.gradient_sync,
            "iteration_s": row.iteration_s,
            "gain": found.gain(row),
            "exposed_s": row.exposed_s,
            "places": row.places,
        }
        for row in found.results
    ]


def _show_many(rows: list[dict[str, Any]]) -> None:
    print_table(
        [
            {
                "arrangement": row["arrangement"],
                "gradient_sync": row["gradient_sync"],
                "iteration [ms]": f"{row['iteration_s'] * 1e3:.2f}",
                "gain": f"{row['gain']:.3f}",
                "exposed [ms]": f"{row['exposed_s'] * 1e3:.2f}",
            }
            for row in rows
        ]
    )
    chosen = rows[-1]["places"]
    for place in ("delayed", "even", "hurried"):
        layers = [layer for layer, where in chosen.items() if where == place]
        if layers:
            print(f"{place}: {', '.join(layers)}")
