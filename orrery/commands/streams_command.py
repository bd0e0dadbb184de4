"""``orrery streams``: schedules of the backward pass on streams with priorities, simulated or run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from executor.streams.measure_request import CoreStreamsRequest
from groundwork.progress import Progress
from groundwork.requests import option
from orrery.terminal.exit_codes import left_out
from orrery.terminal.options import BatchOption, JsonOption, ModelArgument
from orrery.terminal.output import Out, out_files, out_option, print_json, write_results
from orrery.terminal.progress import progress_bar
from orrery.terminal.request_options import takes_requests
from orrery.terminal.views import print_rich, print_table
from planner.plan.plan_options import SyncAlgorithm
from studies.streams.stream_request import StreamRequest

if TYPE_CHECKING:
    from executor.streams.stream_results import MeasuredStreams
    from planner.graph.computation_graph import ComputationGraph
    from studies.streams.schedule_comparison import StreamComparison


_FIELDS = "name method iteration_s streams labels occupancy gradient_end_s held_bytes bound_s"
"""Fields of a schedule in JSON output."""
_COMPARISON_FIELDS = ("model", "batch", "device", "occupancy_model", "layer_paths", "blocks")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClusterOptions:
    """Options of schedules on all devices of a cluster."""

    cluster: str = option(
        "",
        metavar="C",
        help="Cluster on all devices of which the model is trained data-parallel, in place of a device.",
    )
    gradient_sync: SyncAlgorithm = option(
        "ring", help="All-reduce that synchronises gradients; auto picks the fastest for each layer."
    )
    tries: int = option(
        16, low=0, metavar="N", help="With --cluster: layers whose weight gradients are delayed or advanced one by one."
    )


@takes_requests
def orrery_streams(
    model: ModelArgument,
    *,
    batch: BatchOption,
    request: StreamRequest,
    on_cluster: _ClusterOptions,
    on_cores: CoreStreamsRequest,
    run: Annotated[
        bool, typer.Option("--run", help="Run the schedules on this machine's cores, beside the prediction.")
    ] = False,
    out: Annotated[Out | None, out_option("index.html")] = None,
    json: JsonOption = False,
) -> None:
    """Compare schedules of the backward pass: one stream, barriers between layers, asynchronous, critical paths."""
    from planner.models.registry import load_model

    cores = {"cores": on_cores.cores, "critical_cores": on_cores.critical_cores}
    of_device: dict[str, object] = {"max_streams": request.max_streams, **cores}
    if on_cluster.cluster:
        of_device |= {"alpha": request.alpha, "beta": request.beta, "hold_mib": request.hold_mib}
        left_out("with --cluster", run=run or None, out=out and out.typed, **of_device)
    elif run:
        left_out("with --run, whose streams are threads", max_streams=request.max_streams)
    else:
        left_out("without --run", **cores, rounds=on_cores.rounds)
    with out_files(out) as files, progress_bar(model) as progress:
        graph = load_model(model, batch=batch)
        if on_cluster.cluster:
            report = _on_cluster(graph, on_cluster, request, progress)
        elif run:
            report = _measured(graph, on_cores, request, progress)
        else:
            report = _simulated(graph, request, progress)
        write_results(files, report.html)
    if json:
        return print_json(report.values)
    report.show()
    if out:
        print(f"page: {out.files[0]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _StreamsReport:
    """Results as one JSON value, and functions that print them as tables and draw their page."""

    values: dict[str, Any]
    show: Callable[[], None]
    html: Callable[[], str] = str
    """Not called for arrangements, of which there is no page."""


def _on_cluster(
    graph: "ComputationGraph", options: _ClusterOptions, request: StreamRequest, progress: Progress | None
) -> _StreamsReport:
    """Simulate arrangements of weight gradients and their synchronisation on all devices of a cluster."""
    from hwprofiles.catalogue.cluster_catalogue import load_cluster
    from studies.streams.many_devices import arrange

    arrangements = arrange(
        graph,
        load_cluster(options.cluster),
        gradient_sync=options.gradient_sync,
        occupancy_model=request.occupancy_model,
        tries=options.tries,
        progress=progress,
    )
    rows = [
        {
            "arrangement": row.name,
            "gradient_sync": row.gradient_sync,
            "iteration_s": row.iteration_s,
            "gain": arrangements.gain(row),
            "exposed_s": row.exposed_s,
            "places": row.places,
        }
        for row in arrangements.results
    ]
    values = {"model": graph.name, "cluster": options.cluster, "batch": graph.batch, "rows": rows}
    return _StreamsReport(values=values, show=lambda: _show_arrangements(rows))


def _measured(
    graph: "ComputationGraph",
    on_cores: CoreStreamsRequest,
    request: StreamRequest,
    progress: Progress | None,
) -> _StreamsReport:
    """Run the schedules on the cores of this machine."""
    from executor.streams.measure import measure_streams
    from executor.streams.view import as_stream_comparison, measured_values
    from reports.pages.streams_page import streams_html

    measured = measure_streams(
        graph,
        on_cores,
        schedules=request.schedules,
        options=request.paths,
        hold_bytes=request.hold_bytes,
        progress=progress,
    )
    return _StreamsReport(
        values=measured_values(measured),
        show=lambda: _show_measured(measured),
        html=lambda: streams_html(as_stream_comparison(measured)),
    )


def _simulated(graph: "ComputationGraph", request: StreamRequest, progress: Progress | None) -> _StreamsReport:
    """Simulate the schedules on one device."""
    from reports.pages.streams_page import streams_html
    from studies.streams.schedule_comparison import compare_schedules

    comparison = compare_schedules(graph, request, progress)
    return _StreamsReport(
        values={
            **{name: getattr(comparison, name) for name in _COMPARISON_FIELDS},
            "schedules": [
                {**{name: getattr(row, name) for name in _FIELDS.split()}, "gain": comparison.gain(row)}
                for row in comparison.results
            ],
            "notes": comparison.notes,
        },
        show=lambda: _show(comparison),
        html=lambda: streams_html(comparison),
    )


def _show(comparison: "StreamComparison") -> None:
    """Print the simulated schedules as a table, then the headline and notes."""
    from reports.pages.streams_page import streams_headline, streams_table

    print_rich(streams_table(comparison))
    print("\n".join([streams_headline(comparison), *comparison.notes]))


def _show_measured(measured: "MeasuredStreams") -> None:
    """Print the measured schedules as a table, with their predictions."""
    rows = [
        {
            "schedule": row.name,
            "step [ms]": f"{row.step_s * 1e3:.1f}",
            "quartiles": " to ".join(f"{value * 1e3:.1f}" for value in row.quartiles_s),
            "gain": f"{row.gain:.3f}",
            "predicted [ms]": f"{row.predicted_s * 1e3:.1f}",
            "error": f"{row.error:+z.1%}",
            "cores": f"{row.threads[0]} + {row.threads[1]}" if row is not measured.results[0] else str(measured.cores),
            "held [MiB]": f"{row.held_bytes / 2**20:.1f}",
        }
        for row in measured.results
    ]
    print_table(rows)


def _show_arrangements(rows: list[dict[str, Any]]) -> None:
    """Print the arrangements as a table, then the layers at each place in the last one."""
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
    for place in ("delayed", "even", "advanced"):
        layers = [layer for layer, where in chosen.items() if where == place]
        if layers:
            print(f"{place}: {', '.join(layers)}")
