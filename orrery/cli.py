"""The command line.  Commands only connect the parts below; whatever is heavy is imported inside them."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from orrery.accuracy_command import accuracy
from orrery.errors import run
from orrery.lab_command import lab
from orrery.oracle_command import oracle
from orrery.output import print_json, to_json, whole_file
from orrery.pages_command import index, show, timeline
from orrery.probe_command import probe
from orrery.progress import progress_bar
from orrery.reproduce_command import reproduce
from orrery.run_command import run as run_plan
from orrery.streams_command import streams
from orrery.sweep_command import results, sweep
from orrery.validate_command import validate
from orrery.views import (
    cluster_row,
    comparison_values,
    configuration_rows,
    model_values,
    plan_values,
    print_pairs,
    print_rich,
    print_table,
    replay_values,
    told,
)
from orrery.whatif_command import whatif

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help, in half the time
    help="Plan, simulate and compare the parallel training of neural networks on clusters.",
)


def _whole_number(word: str | int) -> int:
    text = str(word)  # defaults pass here as numbers
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise typer.BadParameter(f"must be a whole number >= 1, got {text!r}")
    return int(text)


Model = Annotated[str, typer.Argument(metavar="MODEL", help="Model, such as vgg16 or vgg16:classes=21841.")]
Cluster = Annotated[str, typer.Option(metavar="C", help="Cluster of the catalogue, such as p100-4x4:nodes=8, or file.")]
Batch = Annotated[int, typer.Option(parser=_whole_number, metavar="N", help="Samples in a mini-batch, all devices.")]
Exchange = Annotated[
    Literal[
        "ring", "ps", "ps-spread", "tree", "double-tree", "halving", "direct", "hierarchical", "hierarchical-3", "auto"
    ],
    typer.Option(help="How gradients are exchanged; auto: as is cheapest for each size and place."),
]
Engine = Annotated[Literal["auto", "compiled", "simpy"], typer.Option(help="Engine that replays.")]
Refine = Annotated[
    int,
    typer.Option(min=0, metavar="N", help="Plans to simulate from which layerwise is improved; 0: candidates only."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value (seconds, bytes) and nothing else.")]


@app.command()
def models(*, json: Json = False) -> None:
    """List the built-in models with their sizes."""
    from planner.models import model_names

    with progress_bar("building models"):
        rows = model_values(model_names())
    print_json(rows) if json else print_table(rows)


@app.command()
def clusters(*, json: Json = False) -> None:
    """List the clusters of the catalogue."""
    from hwprofiles.catalogue import cluster_names, describe

    summaries = [describe(name) for name in cluster_names()]
    print_json(summaries) if json else print_table([cluster_row(summary) for summary in summaries])


@app.command()
def plan(
    model: Model,
    *,
    cluster: Cluster,
    batch: Batch,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Plan file to write.")],
    strategy: Annotated[str, typer.Option(metavar="S", help="Strategy's name, or a strategy file.")] = "layerwise",
    exchange: Exchange = "ring",
    batch_norm: Annotated[
        Literal["local", "reduced"],
        typer.Option(help="Normalise by the statistics of each part, or of the whole batch, summed over the parts."),
    ] = "local",
    dtype: Annotated[Literal["float32", "float64"], typer.Option(help="Numbers of the tensors.")] = "float32",
    sub_batches: Annotated[
        int, typer.Option(parser=_whole_number, metavar="K", help="Sub-batches of the last layers, one by one.")
    ] = 1,
    sub_batch_from: Annotated[
        str, typer.Option(metavar="LAYER", help="First layer that takes sub-batches; else the first fully connected.")
    ] = "",
    sub_batch_order: Annotated[
        Literal["each", "all"], typer.Option(help="Each forward and back before the next, or all forward, then back.")
    ] = "each",
    update_each: Annotated[
        bool, typer.Option("--update-each", help="Update after every sub-batch, not once an iteration.")
    ] = False,
    stages: Annotated[
        int | None, typer.Option(parser=_whole_number, metavar="S", help="Stages of a pipeline; else one a device.")
    ] = None,
    micro_batches: Annotated[
        int | None, typer.Option(parser=_whole_number, metavar="M", help="Micro-batches of a pipeline; else up to 4 S.")
    ] = None,
    schedule: Annotated[
        str, typer.Option(metavar="K", help="Of a pipeline: gpipe, 1f1b, the default, interleaved, zero-bubble.")
    ] = "",
    stage_at: Annotated[
        str, typer.Option(metavar="LAYERS", help="First layers of a pipeline's later stages; else the fastest cut.")
    ] = "",
    compress_gradients: Annotated[
        str, typer.Option(metavar="TYPE", help="Data type of gradients in their exchange, such as dynamic-tree.")
    ] = "",
    compress_activations: Annotated[
        str, typer.Option(metavar="TYPE", help="Data type of tensors between layers, and of their gradients.")
    ] = "",
    compress_where: Annotated[
        Literal["all", "pays"], typer.Option(help="Compress all of them, or what shortens the simulated iteration.")
    ] = "all",
    recompute: Annotated[
        str,
        typer.Option(metavar="R", help="Activations computed again: none, segments, or last layers of segments, A,B."),
    ] = "none",
    optimizer: Annotated[
        Literal["sgd", "momentum", "adam"], typer.Option(help="Whose state must fit beside the parameters.")
    ] = "momentum",
    refine: Refine = 0,
    json: Json = False,
) -> None:
    """Find how every layer is split, and write the plan."""
    from hwprofiles.catalogue import load_cluster
    from planner.compressed import compressed_of
    from planner.cut import asked_cut
    from planner.models import load_model
    from planner.pipeline import asked_pipeline
    from planner.plan import make_plan
    from planner.plan_file import save_plan

    with whole_file(out) as file, progress_bar("planning") as progress:
        graph = load_model(model, batch=batch, element_bytes=int(dtype.removeprefix("float")) // 8)
        cut = asked_cut(graph, sub_batches, first=sub_batch_from, order=sub_batch_order, update_each=update_each)
        types = {"gradients": compress_gradients, "activations": compress_activations}
        found = make_plan(
            graph, load_cluster(cluster), strategy=strategy, exchange=exchange, batch_norm=batch_norm, cut=cut,
            pipeline=asked_pipeline(stages=stages, micro_batches=micro_batches, schedule=schedule, stage_at=stage_at),
            compressed=compressed_of(graph, exchange, **types), where_it_pays=compress_where == "pays",
            recompute=recompute, optimizer=optimizer,
            refine=refine, progress=progress,
        )  # fmt: skip
        save_plan(found, file)
    values = {"model": model, "cluster": cluster, "batch": batch, "strategy": strategy, **plan_values(found)}
    if json:
        return print_json(values)
    print_table(configuration_rows(found))
    print_pairs(told(values, found.compressed))


@app.command()
def simulate(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file.")],
    *,
    overlap: Annotated[bool, typer.Option(help="Dependencies instead of barriers between phases.")] = True,
    contention: Annotated[bool, typer.Option(help="Transfers share links and devices.")] = True,
    iterations: Annotated[
        int, typer.Option(parser=_whole_number, metavar="K", help="Iterations until the steady state.")
    ] = 4,
    expand_collectives: Annotated[
        bool, typer.Option("--expand-collectives", help="Replay gradient exchanges message by message.")
    ] = False,
    engine: Engine = "auto",
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Chrome trace to write, for Perfetto.")] = None,
    graph: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Task graph to write, JSON or Parquet, for orrery replay.")
    ] = None,
    json: Json = False,
) -> None:
    """Replay a plan on the model of its cluster."""
    from contextlib import nullcontext

    from orrery.stored_plan import open_plan
    from planner.replay import replay

    traced, written = (whole_file(path) if path else nullcontext() for path in (trace, graph))
    with traced as file, written as graph_file, progress_bar("simulating"):
        plan = open_plan(plan_file, collectives="steps" if expand_collectives else "activity")
        result = replay(plan.program, overlap=overlap, contention=contention, iterations=iterations, engine=engine)
        if file:
            result.write_trace(file)
        if graph_file:
            from planner.graph_export import write_replayed_graph

            write_replayed_graph(result, graph_file)
    values = replay_values(result, plan=plan)
    print_json(values) if json else print_pairs(told(values, plan.program.compressed))


@app.command()
def replay(
    graph_file: Annotated[Path, typer.Argument(metavar="GRAPH", help="Task graph, JSON or Parquet.")],
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="When each task ran, CSV or Parquet to write.")
    ] = None,
    engine: Engine = "auto",
    json: Json = False,
) -> None:
    """Replay a task graph, ours or not."""
    from contextlib import nullcontext
    from time import perf_counter

    from simulator.engine import prepare
    from simulator.engine import simulate as run_engine
    from simulator.graph_file import read_graph, write_schedule

    with whole_file(out) if out else nullcontext() as file, progress_bar("replaying"):
        chosen, times_s = prepare(engine), [perf_counter()]
        source = read_graph(graph_file)
        times_s.append(perf_counter())
        schedule = run_engine(source.graph, engine=chosen, task_name=source.task_name)
        times_s.append(perf_counter())
        if file:
            write_schedule(file, source, schedule)
    values = {
        "tasks": source.graph.size,
        "makespan_s": schedule.makespan_s,
        "load_s": times_s[1] - times_s[0],
        "engine_s": times_s[2] - times_s[1],
        "engine": chosen,
    }
    print_json(values) if json else print_pairs(values)


@app.command()
def analyse(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file.")],
    *,
    top: Annotated[int, typer.Option(parser=_whole_number, metavar="N", help="Rows printed of each table.")] = 10,
    json: Json = False,
) -> None:
    """Say what a plan's iteration waits for, what faster hardware would change, and what fills the memory."""
    from orrery.analysis_view import analysis_values, print_analysis
    from orrery.stored_plan import open_plan
    from planner.analysis import analyse as analyse_program

    with progress_bar("simulating") as progress:
        plan = open_plan(plan_file)
        analysis = analyse_program(plan.program, progress=progress)
    print_json(analysis_values(analysis, plan=plan)) if json else print_analysis(analysis, plan=plan, top=top)


@app.command()
def compare(
    model: Model,
    *,
    cluster: Cluster,
    batch: Batch,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the page and its numbers.")],
    strategies: Annotated[
        str, typer.Option(metavar="S,S,...", help="Strategies, separated by commas.")
    ] = "data,model,owt,spatial,layerwise",
    exchange: Exchange = "ring",
    refine: Refine = 0,
    json: Json = False,
) -> None:
    """Compare strategies: a table, and a page that shows why."""
    from hwprofiles.catalogue import load_cluster
    from planner.compare import compare as compare_strategies
    from planner.hybrids import split_list
    from planner.models import load_model
    from reports.comparison_page import write_comparison_page

    names = split_list(strategies)
    page = out / "index.html"
    with whole_file(page) as file, whole_file(out / "comparison.json") as numbers, progress_bar(model) as progress:
        graph, machines = load_model(model, batch=batch), load_cluster(cluster)
        comparison = compare_strategies(graph, machines, names, exchange=exchange, refine=refine, progress=progress)
        values = comparison_values(comparison, page=page)
        write_comparison_page(comparison, file)
        numbers.write_bytes(to_json(values))
    if json:
        return print_json(values)
    from reports.summary import headline
    from reports.tables import comparison_table

    print_rich(comparison_table(comparison))
    refused = [f"{name} was refused: {reason}" for name, reason in comparison.refused.items()]
    print("\n".join([headline(comparison), *refused, *comparison.notes, f"page: {page}"]))


app.command("reproduce")(reproduce)
app.command("accuracy")(accuracy)
app.command("run")(run_plan)
app.command("probe")(probe)
app.command("validate")(validate)
app.command("oracle")(oracle)
app.command("streams")(streams)
app.command("sweep")(sweep)
app.command("results")(results)
app.command("timeline")(timeline)
app.command("show")(show)
app.command("index")(index)
app.add_typer(lab, name="lab")
app.add_typer(whatif, name="whatif")


def main() -> None:
    """Run the command line on the words of the process and exit with its code."""
    sys.exit(run(app))
