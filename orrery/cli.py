"""The command line.  Commands only connect the parts below; whatever is heavy is imported inside them."""

import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

from orrery.commands import (
    accuracy,
    index,
    lab,
    oracle,
    probe,
    reproduce,
    results,
    run,
    show,
    streams,
    sweep,
    timeline,
    validate,
    whatif,
)
from orrery.terminal import (
    Batch,
    BatchNorm,
    Cluster,
    Commands,
    CompressActivations,
    CompressGradients,
    CompressWhere,
    Engine,
    Exchange,
    ExchangeOrder,
    Json,
    MicroBatches,
    Model,
    Numbers,
    Optimizer,
    PlanFile,
    Recompute,
    Refine,
    Schedule,
    StageAt,
    Stages,
    Strategies,
    Strategy,
    SubBatches,
    SubBatchFrom,
    SubBatchOrder,
    Trace,
    UpdateEach,
    cluster_row,
    comparison_values,
    configuration_rows,
    model_values,
    plan_values,
    print_json,
    print_pairs,
    print_rich,
    print_table,
    progress_bar,
    replay_values,
    run_app,
    to_json,
    told,
    whole_file,
    whole_number,
)

__all__ = ["app", "main"]

app = typer.Typer(
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help, in half the time
    help="Plan, simulate and compare the parallel training of neural networks on clusters.",
)


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
    from hwprofiles.catalogue import cluster_names, describe_cluster

    summaries = [describe_cluster(name) for name in cluster_names()]
    print_json(summaries) if json else print_table([cluster_row(summary) for summary in summaries])


@app.command()
def plan(
    model: Model,
    *,
    cluster: Cluster,
    batch: Batch,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Plan file to write.")],
    strategy: Strategy = "layerwise",
    gradient_sync: Exchange = "ring",
    gradient_sync_order: ExchangeOrder = "end",
    batch_norm: BatchNorm = "local",
    dtype: Numbers = "float32",
    sub_batches: SubBatches = 1,
    sub_batch_from: SubBatchFrom = "",
    sub_batch_order: SubBatchOrder = "each",
    update_each: UpdateEach = False,
    stages: Stages = None,
    micro_batches: MicroBatches = None,
    schedule: Schedule = "",
    stage_at: StageAt = "",
    compress_gradients: CompressGradients = "",
    compress_activations: CompressActivations = "",
    compress_where: CompressWhere = "all",
    recompute: Recompute = "none",
    optimizer: Optimizer = "momentum",
    refine: Refine = 0,
    json: Json = False,
) -> None:
    """Find how every layer is split, and write the plan."""
    from hwprofiles.catalogue import load_cluster
    from planner.compression import compressed_of
    from planner.models import load_model
    from planner.parallel import requested_micro_batching
    from planner.plan import make_plan, save_plan
    from planner.search import requested_pipeline

    files_read = [word for word in (strategy, cluster.partition(":")[0]) if Path(word).suffix]  # names have none
    with whole_file(out, *files_read) as file, progress_bar("planning") as progress:
        graph = load_model(model, batch=batch, element_bytes=int(dtype.removeprefix("float")) // 8)
        micro_batching = requested_micro_batching(
            graph, sub_batches, first=sub_batch_from, order=sub_batch_order, update_each=update_each
        )
        types = {"gradients": compress_gradients, "activations": compress_activations}
        found = make_plan(
            graph,
            load_cluster(cluster),
            strategy=strategy,
            gradient_sync=gradient_sync,
            gradient_sync_order=gradient_sync_order,
            batch_norm=batch_norm,
            micro_batching=micro_batching,
            pipeline=requested_pipeline(
                stages=stages, micro_batches=micro_batches, schedule=schedule, stage_at=stage_at
            ),
            compressed=compressed_of(graph, gradient_sync, **types),
            where_it_pays=compress_where == "pays",
            recompute=recompute,
            optimizer=optimizer,
            refine=refine,
            progress=progress,
        )
        save_plan(found, file)
    values = {"model": model, "cluster": cluster, "batch": batch, "strategy": strategy, **plan_values(found)}
    if json:
        return print_json(values)
    print_table(configuration_rows(found))
    print_pairs(told(values, found.compressed))


@app.command()
def simulate(
    plan_file: PlanFile,
    *,
    overlap: Annotated[bool, typer.Option(help="Dependencies instead of barriers between phases.")] = True,
    contention: Annotated[bool, typer.Option(help="Transfers share links and devices.")] = True,
    iterations: Annotated[
        int, typer.Option(parser=whole_number, metavar="K", help="Iterations until the steady state.")
    ] = 4,
    expand_collectives: Annotated[
        bool, typer.Option("--expand-collectives", help="Replay gradient exchanges message by message.")
    ] = False,
    engine: Engine = "auto",
    trace: Trace = None,
    graph: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Task graph to write, JSON or Parquet, for orrery replay.")
    ] = None,
    json: Json = False,
) -> None:
    """Replay a plan on the model of its cluster."""
    from contextlib import nullcontext

    from orrery.terminal import open_plan
    from planner.simulation import replay

    traced, written = (whole_file(path, plan_file) if path else nullcontext() for path in (trace, graph))
    with traced as file, written as graph_file, progress_bar("simulating"):
        plan = open_plan(plan_file, collectives="steps" if expand_collectives else "activity")
        result = replay(plan.program, overlap=overlap, contention=contention, iterations=iterations, engine=engine)
        if file:
            result.write_trace(file)
        if graph_file:
            from planner.simulation import write_replayed_graph

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

    from simulator.engines import prepare, simulate as run_engine
    from simulator.formats import read_graph, write_schedule

    with whole_file(out, graph_file) if out else nullcontext() as file, progress_bar("replaying"):
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
    plan_file: PlanFile,
    *,
    top: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Rows printed of each table.")] = 10,
    json: Json = False,
) -> None:
    """Say what a plan's iteration waits for, what faster hardware would change, and what fills the memory."""
    from orrery.terminal import analysis_values, open_plan, print_analysis
    from planner.plan import analyse as analyse_program

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
    strategies: Strategies = "data,model,owt,spatial,layerwise",
    gradient_sync: Exchange = "ring",
    refine: Refine = 0,
    json: Json = False,
) -> None:
    """Compare strategies: a table, and a page that shows why."""
    from hwprofiles.catalogue import load_cluster
    from planner.models import load_model
    from planner.parallel import split_list
    from planner.plan import compare as compare_strategies
    from reports.pages import write_comparison_page

    names = split_list(strategies)
    page = out / "index.html"
    with whole_file(page) as file, whole_file(out / "comparison.json") as numbers, progress_bar(model) as progress:
        graph, machines = load_model(model, batch=batch), load_cluster(cluster)
        comparison = compare_strategies(
            graph, machines, names, gradient_sync=gradient_sync, refine=refine, progress=progress
        )
        values = comparison_values(comparison, page=page)
        write_comparison_page(comparison, file)
        numbers.write_bytes(to_json(values))
    if json:
        return print_json(values)
    from reports.tables import comparison_headline, comparison_table

    print_rich(comparison_table(comparison))
    refused = [f"{name} was refused: {reason}" for name, reason in comparison.refused.items()]
    print("\n".join([comparison_headline(comparison), *refused, *comparison.notes, f"page: {page}"]))


app.command("reproduce")(reproduce)
app.command("accuracy")(accuracy)
app.command("run")(run)
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
    gc.set_threshold(50_000, 10, 10)  # what loading makes stays: looking for cycles took a sixth of a start
    sys.exit(run_app(app))
