"""``orrery whatif``: where a change pays, swept over real plans on a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orrery.output import print_json, to_json, whole_file
from orrery.progress import progress_bar
from orrery.views import print_rich

if TYPE_CHECKING:
    from planner.eight_bit.whatif import Sweep

__all__ = ["whatif"]

whatif = typer.Typer(help="Sweep a choice over plans on a cluster: where does it pay?")


@whatif.callback()
def _group() -> None:
    """Keeps the name of the question where there is only one."""


@whatif.command("eight-bit")
def eight_bit(
    *,
    cluster: Annotated[str, typer.Option(metavar="C", help="Cluster, such as titanx-4, or file.")],
    model: Annotated[str, typer.Option(metavar="M", help="Model, such as alexnet or vgg16.")],
    batch_per_device: Annotated[int, typer.Option(min=1, metavar="B", help="Samples of each device.")] = 128,
    sub_batches: Annotated[
        str, typer.Option(metavar="K,K,...", help="Sub-batches that the fully connected part takes, one by one.")
    ] = "1,2,4,8",
    types: Annotated[
        str, typer.Option(metavar="T,T,...", help="Data types, such as dynamic-tree:block=4096; beside them float32.")
    ] = "float16,dynamic-tree",
    devices: Annotated[
        str, typer.Option(metavar="N,N,...", help="Numbers of devices; else 2, 4, ... up to all, at most 8.")
    ] = "",
    link_speeds: Annotated[
        str, typer.Option(metavar="X,X,...", help="Factors of the speed of a class of links.")
    ] = "0.1,0.3,1,3",
    link_class: Annotated[
        str, typer.Option(metavar="NAME", help="Class of links, as the cluster's file has it; else the slowest in use.")
    ] = "",
    compress: Annotated[Literal["both", "activations", "gradients"], typer.Option(help="What is compressed.")] = "both",
    exact: Annotated[
        bool, typer.Option("--exact", help="Find crossovers over link speed by bisection, not by interpolation.")
    ] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the page and its numbers.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON value (seconds, bytes) and nothing else.")] = (
        False
    ),
) -> None:
    """Sweep sub-batches, data types, devices and link speed: where does compression start to pay, where does it stop?

    Every point is a plan of ours (samples in the first part, channels in the fully connected one), simulated.
    """
    from contextlib import ExitStack

    from hwprofiles.catalogue import load_cluster
    from planner.eight_bit.lists import factors, type_list, whole_numbers
    from planner.eight_bit.whatif import Question, sweep
    from planner.models import load_model
    from reports.eight_bit_page import write_eight_bit_page

    with ExitStack() as stack:
        page = stack.enter_context(whole_file(out / "index.html")) if out else None
        values_file = stack.enter_context(whole_file(out / "whatif.json")) if out else None
        progress = stack.enter_context(progress_bar(model))
        question = Question(
            graph=load_model(model, batch=batch_per_device),
            cluster=load_cluster(cluster),
            sub_batches=whole_numbers("sub_batches", sub_batches),
            types=type_list(types),
            devices=whole_numbers("devices", devices) if devices else (),
            link_speeds=factors("link_speeds", link_speeds),
            link_class=link_class,
            compress=compress,
        )
        found = sweep(question, exact=exact, progress=progress)
        values = found.values()
        if page and values_file:
            write_eight_bit_page(found, page)
            values_file.write_bytes(to_json(values))
    print_json(values) if json else _show(found, out)


def _show(found: "Sweep", out: Path | None) -> None:
    from reports.eight_bit_tables import crossing_lines, headline, sweep_table

    print_rich(sweep_table(found))
    lines = [headline(found), *crossing_lines(found), *found.notes]
    print("\n".join([*lines, f"page: {out / 'index.html'}"] if out else lines))
