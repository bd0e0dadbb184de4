"""``orrery whatif``: where a change pays, swept over real plans on a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from orrery.terminal import (
    Batch,
    Cluster,
    Exchange,
    Json,
    Model,
    Page,
    page_files,
    print_json,
    print_rich,
    progress_bar,
    takes_requests,
    to_json,
)
from studies.eight_bit import CompressionRequest

if TYPE_CHECKING:
    from studies.eight_bit import CompressionSweep

__all__ = ["whatif"]


class _Questions(TyperGroup):
    """A first word that names no question is a model."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the question in front where it is left out."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["model", *args]
        return super().parse_args(ctx, args)


whatif = typer.Typer(
    cls=_Questions,
    help="What would change? Of a model's strategies (orrery whatif MODEL ...), or where a choice pays (eight-bit).",
)


@whatif.command("model")
def by_hand(
    model: Model,
    *,
    cluster: Cluster,
    batch: Batch,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=X", help="Change, such as link.ib.bandwidth_gbyte_per_s=25; all together."),
    ] = None,
    strategies: Annotated[str, typer.Option(metavar="S,S,...", help="Strategies, each planned anew.")] = (
        "data,owt,layerwise"
    ),
    gradient_sync: Exchange = "ring",
    top: Annotated[int, typer.Option(min=0, metavar="N", help="Sensitivities printed a strategy.")] = 3,
    json: Json = False,
) -> None:
    """Today against changed hardware, for each strategy; with no --set, against what usually goes wrong."""
    from hwprofiles import ConfigError
    from hwprofiles.catalogue import load_cluster
    from planner.parallel import split_list
    from reports.tables import sensitivity_table, whatif_reason_lines, whatif_table
    from studies.whatif import Scenario, standard_scenarios, whatif as ask

    with progress_bar(model) as progress:
        given = (Scenario(name=", ".join(changes), changes=tuple(changes)),) if changes else ()
        found = ask(
            model,
            cluster,
            batch=batch,
            strategies=split_list(strategies),
            scenarios=given or standard_scenarios(load_cluster(cluster)),
            gradient_sync=gradient_sync,
            progress=progress,
        )
    if all(row.reason for row in found.rows):  # nothing was answered: the question is at fault
        today = found.rows[: len(found.rows) // len(found.scenarios)]
        raise ConfigError("; ".join(f"{row.strategy}: {row.reason}" for row in today))
    if json:
        return print_json(found)
    print_rich(whatif_table(found))
    if top and found.sensitivities:
        print_rich(sensitivity_table(found, top))
    for line in whatif_reason_lines(found):
        print(line)


@whatif.command("eight-bit")
@takes_requests
def eight_bit(
    *,
    cluster: Cluster,
    model: Annotated[str, typer.Option(metavar="M", help="Model, such as alexnet or vgg16.")],
    request: CompressionRequest,
    batch_per_device: Annotated[int, typer.Option(min=1, metavar="B", help="Samples of each device.")] = 128,
    out: Page = None,
    json: Json = False,
) -> None:
    """Sweep sub-batches, data types, devices and link speed: where does compression start to pay, where does it stop?

    Every point is a plan of ours (samples in the first part, channels in the fully connected one), simulated.
    """
    from hwprofiles.catalogue import load_cluster
    from planner.models import load_model
    from reports.pages import write_eight_bit_page
    from studies.eight_bit import sweep_compression

    with page_files(out, "whatif.json") as files, progress_bar(model) as progress:
        graph = load_model(model, batch=batch_per_device)
        sweep = sweep_compression(graph, load_cluster(cluster), request, progress)
        values = sweep.values()
        if files:
            write_eight_bit_page(sweep, files[0])
            files[1].write_bytes(to_json(values))
    print_json(values) if json else _show(sweep, out)


def _show(found: "CompressionSweep", out: Path | None) -> None:
    from reports.tables import compression_table, crossing_lines, eight_bit_headline

    print_rich(compression_table(found))
    lines = [eight_bit_headline(found), *crossing_lines(found), *found.notes]
    print("\n".join([*lines, f"page: {out / 'index.html'}"] if out else lines))
