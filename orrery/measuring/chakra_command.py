"""``orrery chakra``: execution traces of MLCommons Chakra, written of plans and read of any program."""

from pathlib import Path
from typing import Annotated, Any

import typer

from orrery.terminal import (
    ClusterOption,
    JsonOption,
    PlanArgument,
    open_plan,
    output_file,
    print_json,
    print_pairs,
    progress_bar,
)

__all__ = ["chakra_app"]

chakra_app = typer.Typer(help="Exchange execution traces with other simulators: MLCommons Chakra, one file a rank.")


@chakra_app.command("write")
def chakra_write(
    plan_file: PlanArgument,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the traces: trace.0.et, trace.1.et, ...")],
    json: JsonOption = False,
) -> None:
    """Write one iteration of a plan as a trace for each device."""
    from contextlib import ExitStack

    from simulator.formats import write_chakra
    from studies.traces import chakra_traces

    with ExitStack() as stack, progress_bar("writing traces"):
        traces = chakra_traces(open_plan(plan_file).program)
        paths = [out / f"trace.{rank}.et" for rank in range(len(traces))]
        files = [stack.enter_context(output_file(path, plan_file)) for path in paths]
        for nodes, file in zip(traces, files, strict=True):
            write_chakra(file, nodes)
    values = {"ranks": len(traces), "nodes": sum(map(len, traces)), "first": str(paths[0]), "last": str(paths[-1])}
    print_json(values) if json else print_pairs(values)


@chakra_app.command("read")
def chakra_read(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE...", help="Traces of all ranks, in their order.")],
    *,
    cluster: ClusterOption,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Task graph to write (.json or .parquet), for orrery replay.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Replay traces of any program on a cluster; its messages and collectives are priced as those of plans."""
    from contextlib import nullcontext

    from hwprofiles.catalogue import load_cluster
    from simulator.engines import simulate
    from simulator.formats import read_chakra, write_graph
    from studies.traces import chakra_graph

    with output_file(out, *map(str, traces), cluster) if out else nullcontext() as file, progress_bar("replaying"):
        found = chakra_graph([read_chakra(path) for path in traces], load_cluster(cluster))
        if file:
            write_graph(file, found.graph, names=found.names, kinds=found.kinds)
        makespan_s = simulate(found.graph).makespan_s
    values: dict[str, Any] = {"ranks": len(traces), "tasks": found.graph.size, "makespan_s": makespan_s}
    values |= {"graph": str(out)} if out else {}
    print_json(values) if json else print_pairs(values)
