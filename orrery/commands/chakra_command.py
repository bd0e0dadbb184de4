"""``orrery chakra``: execution traces of MLCommons Chakra, written of plans and read of any program."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from orrery.terminal.options import ClusterOption, JsonOption, PlanArgument
from orrery.terminal.output import Out, out_files, out_option, output_file, print_json
from orrery.terminal.progress import progress_bar
from orrery.terminal.stored_plan import open_plan
from orrery.terminal.views import print_pairs

chakra_app = typer.Typer(help="Exchange execution traces with other simulators: MLCommons Chakra, one file a rank.")
_TRACE = re.compile(r"trace\.([0-9]+)\.et")


@chakra_app.command("write")
def chakra_write(
    plan_file: PlanArgument,
    *,
    out: Annotated[Out, out_option("trace.0.et", "trace.1.et", folder_only=True)],
    expand_collectives: Annotated[
        bool, typer.Option("--expand-collectives", help="Write each message of an all-reduce as a send and a receive.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write one iteration of a plan as a trace for each device; the folder must have no traces of further ones."""
    from contextlib import ExitStack

    from simulator.formats.chakra import write_chakra
    from studies.traces.chakra_program import chakra_traces

    with ExitStack() as stack, progress_bar("writing traces"):
        plan = open_plan(plan_file, collectives="steps" if expand_collectives else "activity")
        traces = chakra_traces(plan.program)
        paths = [out.typed / f"trace.{rank}.et" for rank in range(len(traces))]
        _check_no_others(out.typed, paths)
        files = [stack.enter_context(output_file(path)) for path in paths]
        for nodes, file in zip(traces, files, strict=True):
            write_chakra(file, nodes)
    values = {"ranks": len(traces), "nodes": sum(map(len, traces)), "first": str(paths[0]), "last": str(paths[-1])}
    print_json(values) if json else print_pairs(values)


@chakra_app.command("read")
def chakra_read(
    traces: Annotated[
        list[Path], typer.Argument(metavar="TRACE...", help="Traces of all ranks, in their order; trace.N.et by N.")
    ],
    *,
    cluster: ClusterOption,
    out: Annotated[Out | None, out_option("graph.json", also=(".parquet",))] = None,
    json: JsonOption = False,
) -> None:
    """Replay traces of any program on a cluster; its messages and collectives are priced as those of plans."""
    from hwprofiles.catalogue.cluster_catalogue import load_cluster
    from simulator.engines.engine import simulate
    from simulator.formats.chakra import read_chakra
    from simulator.formats.graph_file import write_graph
    from studies.traces.chakra_graph import chakra_graph

    with out_files(out) as files, progress_bar("replaying"):
        found = chakra_graph([read_chakra(path) for path in _in_order(traces)], load_cluster(cluster))
        if files:
            write_graph(files[0], found.graph, names=found.names, kinds=found.kinds)
        makespan_s = simulate(found.graph).makespan_s
    values: dict[str, Any] = {"ranks": len(traces), "tasks": found.graph.size, "makespan_s": makespan_s}
    values |= {"graph": str(out.files[0])} if out else {}
    print_json(values) if json else print_pairs(values)


def _check_no_others(folder: Path, written: Sequence[Path]) -> None:
    """Raise ConfigError if a folder has a trace that is not replaced: readers would take it for a further rank."""
    from groundwork.control_characters import check_texts
    from groundwork.errors import ConfigError

    check_texts([str(folder)], "output path")
    names = {path.name for path in written}
    others = [path for path in folder.glob("trace.*.et") if _TRACE.fullmatch(path.name) and path.name not in names]
    if others:
        first = min(others, key=_rank)
        raise ConfigError(f"--out must have no traces beside the {len(written)} written, got {str(first)!r}: remove it")


def _in_order(paths: Sequence[Path]) -> list[Path]:
    """Return traces by the numbers in their names; as they are given where a name has none."""
    return sorted(paths, key=_rank) if all(_TRACE.fullmatch(path.name) for path in paths) else list(paths)


def _rank(path: Path) -> int:
    """Return the number in the name of a trace."""
    found = _TRACE.fullmatch(path.name)
    return int(found[1]) if found else -1
