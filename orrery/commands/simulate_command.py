"""``orrery simulate``, ``orrery replay`` and ``orrery analyse``: plans and task graphs replayed."""

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from groundwork.requests import whole_number
from orrery.terminal.options import (
    EngineOption,
    ExecutionModel,
    JsonOption,
    PlanArgument,
    PriceOption,
    TraceOption,
    price_of,
)
from orrery.terminal.output import Out, out_files, out_option, output_file, print_json
from orrery.terminal.plan_view import plan_headline
from orrery.terminal.progress import progress_bar
from orrery.terminal.request_options import takes_requests
from orrery.terminal.views import print_pairs, printed_values, replay_values

_Expand = Annotated[
    bool, typer.Option("--expand-collectives", help="Replay gradient synchronisation message by message.")
]


@takes_requests
def orrery_simulate(
    plan_file: PlanArgument,
    *,
    execution: ExecutionModel,
    expand_collectives: _Expand = False,
    engine: EngineOption = "auto",
    price: PriceOption = None,
    trace: TraceOption = None,
    graph: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Task graph to write, JSON or Parquet, for orrery replay.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Replay a plan on the model of its cluster."""
    from orrery.terminal.stored_plan import open_plan
    from planner.plan.training_rates import training_rates
    from planner.simulation.graph_export import write_replayed_graph
    from planner.simulation.program_replay import replay

    traced, written = (output_file(path) if path else nullcontext() for path in (trace, graph))
    with traced as file, written as graph_file, progress_bar("simulating"):
        each = bool(trace or graph or execution.seed is not None)  # what is written has a row for each device
        plan = open_plan(plan_file, collectives="steps" if expand_collectives else "activity", folded=not each)
        paid = price_of(plan.plan.cluster, price)
        result = replay(plan.program, engine=engine, **asdict(execution))
        if file:
            result.write_trace(file)
        if graph_file:
            write_replayed_graph(result, graph_file)
    rates = training_rates(plan.costs, result.program, result.expected_s).priced(paid)
    values = replay_values(result, rates, plan=plan)
    if json:
        print_json(values)
    else:
        print(plan_headline(plan.plan, result, rates))
        print_pairs(printed_values(values, plan.program.compressed))


def orrery_replay(
    graph_file: Annotated[Path, typer.Argument(metavar="GRAPH", help="Task graph, JSON or Parquet.")],
    *,
    out: Annotated[Out | None, out_option("schedule.csv", also=(".parquet",))] = None,
    engine: EngineOption = "auto",
    json: JsonOption = False,
) -> None:
    """Replay a task graph, written by orrery simulate or by another program."""
    from time import perf_counter

    from simulator.engines.engine import prepare, simulate
    from simulator.formats.graph_file import read_graph, write_schedule

    with out_files(out) as files, progress_bar("replaying"):
        chosen, times_s = prepare(engine), [perf_counter()]
        source = read_graph(graph_file)
        times_s.append(perf_counter())
        schedule = simulate(source.graph, engine=chosen, task_name=source.task_name)
        times_s.append(perf_counter())
        if files:
            write_schedule(files[0], source, schedule)
    values = {
        "tasks": source.graph.size,
        "makespan_s": schedule.makespan_s,
        **({"origin_s": schedule.origin_s} if schedule.origin_s else {}),
        "load_s": times_s[1] - times_s[0],
        "engine_s": times_s[2] - times_s[1],
        "engine": chosen,
    }
    print_json(values) if json else print_pairs(values)


def orrery_analyse(
    plan_file: PlanArgument,
    *,
    top: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Rows to print of each table.")] = 10,
    json: JsonOption = False,
) -> None:
    """Show what a plan's iteration waits for, what faster hardware would change, and what fills the memory."""
    from orrery.terminal.analysis_view import analysis_values, print_analysis
    from orrery.terminal.stored_plan import open_plan
    from planner.plan.analysis import analyse

    with progress_bar("simulating") as progress:
        plan = open_plan(plan_file, folded=True)
        analysis = analyse(plan.program, plan.lower_on, progress=progress)
    print_json(analysis_values(analysis, plan=plan)) if json else print_analysis(analysis, plan=plan, top=top)
