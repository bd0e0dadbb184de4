"""``orrery streams``: what sub-tasks on streams with priorities bring on one device."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from orrery.output import print_json, whole_file
from orrery.progress import progress_bar
from orrery.views import print_rich

if TYPE_CHECKING:
    from executor.streams.measure import MeasuredStreams
    from planner.streams.compare import StreamComparison
    from planner.streams.many import ManyDevices

__all__ = ["streams"]


def streams(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model, such as vgg16 or resnet50.")],
    *,
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Samples in a mini-batch.")],
    device: Annotated[str, typer.Option(metavar="D", help="Compute profile, such as p100, or file.")] = "p100",
    schedules: Annotated[
        str, typer.Option(metavar="S,S,...", help="Schedules, separated by commas; gains are over the first.")
    ] = "one-stream,layers,asynchronous,critical-path",
    occupancy: Annotated[
        Literal["geometry", "throughput"],
        typer.Option(help="What a kernel keeps from others: the room of its blocks, or only what its speed asks for."),
    ] = "geometry",
    alpha: Annotated[
        int | None, typer.Option(metavar="A", help="Priority of weight gradients below their layer path.")
    ] = None,
    beta: Annotated[
        int | None, typer.Option(metavar="B", help="Priority of bias gradients below their layer path.")
    ] = None,
    method: Annotated[
        Literal["auto", "levels", "queue", "synchronisation"],
        typer.Option(help="How priorities reach a device; auto: by its levels, or the faster of the other two."),
    ] = "auto",
    max_streams: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Streams that may be used; else what the device runs.")
    ] = None,
    hold_mib: Annotated[
        float | None, typer.Option(metavar="MIB", help="Most that delayed weight gradients may hold.")
    ] = None,
    cluster: Annotated[
        str, typer.Option(metavar="C", help="In place of a device: data-parallel on all devices of a cluster.")
    ] = "",
    exchange: Annotated[str, typer.Option(metavar="X", help="With --cluster: how gradients are exchanged.")] = "ring",
    tries: Annotated[
        int, typer.Option(min=0, metavar="N", help="With --cluster: layers whose gradients are placed one by one.")
    ] = 16,
    run: Annotated[
        bool, typer.Option("--run", help="Run them on this machine's cores, beside the prediction.")
    ] = False,
    cores: Annotated[int | None, typer.Option(min=1, metavar="K", help="With --run: cores to use; else all.")] = None,
    critical_cores: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="With --run: cores of a critical sub-task; else half.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, metavar="R", help="With --run: measured steps of each schedule.")] = 5,
    html: Annotated[Path | None, typer.Option(metavar="PAGE", help="Page to write.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON value (seconds, bytes) and nothing else.")] = (
        False
    ),
) -> None:
    """Compare schedules of the backward pass: one stream, barriers between layers, asynchronous, critical paths."""
    from contextlib import nullcontext

    from planner.models import load_model
    from planner.streams.compare import Question, compare_schedules
    from planner.streams.schedules import PathOptions
    from reports.streams_page import write_streams_page

    names = tuple(name.strip() for name in schedules.split(","))
    options = PathOptions(alpha=alpha, beta=beta, method=method)
    hold_bytes = None if hold_mib is None else hold_mib * 2**20
    with whole_file(html) if html else nullcontext() as page, progress_bar(model) as progress:
        graph = load_model(model, batch=batch)
        if cluster:
            from hwprofiles.catalogue import load_cluster
            from planner.streams.many import arrange

            many = arrange(
                graph, load_cluster(cluster), exchange=exchange, reading=occupancy, tries=tries, progress=progress
            )
            rows = _many_rows(many)
            values = {"model": model, "cluster": cluster, "batch": batch, "rows": rows}
            return print_json(values) if json else _show_many(rows)
        if run:
            from executor.streams.measure import measure_streams
            from executor.streams.view import as_comparison, measured_values

            measured = measure_streams(
                graph, cores=cores, critical_cores=critical_cores, rounds=rounds, schedules=names, options=options,
                hold_bytes=hold_bytes, progress=progress,
            )  # fmt: skip
            if page:
                write_streams_page(as_comparison(measured), page)
            return print_json(measured_values(measured)) if json else _show_measured(measured, html)
        question = Question(
            graph=graph,
            device=device,
            schedules=names,
            reading=occupancy,
            options=options,
            hold_bytes=hold_bytes,
            max_streams=max_streams,
        )
        found = compare_schedules(question, progress)
        if page:
            write_streams_page(found, page)
    print_json(_values(found)) if json else _show(found, html)


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


def _show(found: "StreamComparison", html: Path | None) -> None:
    from reports.streams_page import headline, streams_table

    print_rich(streams_table(found))
    lines = [headline(found), *found.notes]
    print("\n".join([*lines, f"page: {html}"] if html else lines))


def _show_measured(found: "MeasuredStreams", html: Path | None) -> None:
    from orrery.views import print_table

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
    if html:
        print(f"page: {html}")


def _many_rows(found: "ManyDevices") -> list[dict[str, Any]]:
    return [
        {
            "arrangement": row.name, "exchange": row.exchange, "iteration_s": row.iteration_s, "gain": found.gain(row),
            "exposed_s": row.exposed_s, "places": row.places,
        }
        for row in found.results
    ]  # fmt: skip


def _show_many(rows: list[dict[str, Any]]) -> None:
    from orrery.views import print_table

    print_table(
        [
            {
                "arrangement": row["arrangement"],
                "exchange": row["exchange"],
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
