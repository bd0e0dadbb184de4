"""``orrery whatif``: the effect of changed hardware, or of compressed messages, on simulated plans."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from orrery.terminal.command_groups import GroupedCommand
from orrery.terminal.options import BatchOption, ClusterOption, JsonOption, ModelArgument, PlannedConditions
from orrery.terminal.output import Out, out_files, out_option, print_json, print_lines, write_results
from orrery.terminal.progress import progress_bar
from orrery.terminal.request_options import takes_requests
from orrery.terminal.signals import kept
from orrery.terminal.views import print_rich
from studies.eight_bit.compression_request import CompressionRequest

if TYPE_CHECKING:
    from studies.whatif.scenarios import WhatIf


_OutOption = Annotated[Out | None, out_option("index.html", "whatif.json")]


class _Subjects(TyperGroup):
    """Sub-commands whose first may be left out: a first word that names none of them is a model."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``model`` in front where the sub-command is left out."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["model", *args]
        return super().parse_args(ctx, args)


whatif_app = typer.Typer(
    cls=_Subjects,
    help="Predict what changes bring: of hardware (orrery whatif MODEL, or scenarios of a file), or of compression.",
)
_Top = Annotated[int, typer.Option(min=0, metavar="N", help="Sensitivities to print for each strategy.")]


@whatif_app.command("model", cls=GroupedCommand)
@takes_requests
def orrery_whatif_model(
    model: ModelArgument,
    *,
    conditions: PlannedConditions,
    cluster: ClusterOption,
    batch: BatchOption,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=X",
            help="Change, such as link.ib.bandwidth_gbyte_per_s=25; may repeat, all are made together.",
        ),
    ] = None,
    strategies: Annotated[
        str, typer.Option(metavar="S,S,...", help="Strategies, each planned anew for every change.")
    ] = ("data,owt,layerwise"),
    top: _Top = 3,
    out: _OutOption = None,
    json: JsonOption = False,
) -> None:
    """Compare each strategy today and on changed hardware; without --set, with what usually goes wrong."""
    from hwprofiles.catalogue.cluster_catalogue import load_cluster
    from planner.plan.plan_text import split_plan_texts
    from studies.whatif.scenarios import Scenario, standard_scenarios, whatif

    with out_files(out) as files, progress_bar(model) as progress:
        given = (Scenario(name=", ".join(changes), changes=tuple(changes)),) if changes else ()
        result = kept(
            whatif,
            model,
            cluster,
            batch=batch,
            strategies=split_plan_texts(strategies),
            scenarios=given or standard_scenarios(load_cluster(cluster)),
            **asdict(conditions),
            progress=progress,
        )
        values = _written(result, files)
    print_json(values) if json else _show_scenarios(result, top, out)


@whatif_app.command("scenarios", cls=GroupedCommand)
def orrery_whatif_scenarios(
    scenario_file: Annotated[Path, typer.Argument(metavar="FILE", help="Named scenarios, YAML.")],
    *,
    top: _Top = 3,
    out: _OutOption = None,
    json: JsonOption = False,
) -> None:
    """Compare the named scenarios of a file with today, side by side."""
    from studies.whatif.scenario_file import read_scenarios
    from studies.whatif.scenarios import whatif

    with out_files(out) as files, progress_bar("scenarios") as progress:
        asked = read_scenarios(scenario_file)
        asks = {name: getattr(asked, name) for name in ("batch", "strategies", "scenarios")}
        result = kept(whatif, asked.model, asked.cluster, **asks, **asked.options, progress=progress)
        values = _written(result, files)
    print_json(values) if json else _show_scenarios(result, top, out)


def _written(result: "WhatIf", files: tuple[Path, ...]) -> dict[str, Any]:
    """Return a result as plain values, and write the page and them.

    Raises:
        ConfigError: Nothing has a plan: the options are at fault.
    """
    from dataclasses import fields

    from groundwork.errors import ConfigError
    from reports.pages.decision_pages import whatif_html
    from reports.tables.whatif_tables import whatif_headline

    if all(row.reason for row in result.rows):
        today = result.rows[: len(result.rows) // len(result.scenarios)]
        raise ConfigError("; ".join(f"{row.strategy}: {row.reason}" for row in today))
    values = {"headline": whatif_headline(result)}
    values |= {field.name: getattr(result, field.name) for field in fields(result)}
    write_results(files, lambda: whatif_html(result), values)
    return values


def _show_scenarios(result: "WhatIf", top: int, out: Out | None) -> None:
    """Print the finding, the scenarios as a table, what sets the pace in each, and the sensitivities."""
    from reports.tables.whatif_tables import (
        sensitivity_table,
        whatif_headline,
        whatif_reason_lines,
        whatif_table,
        whatif_why_lines,
    )

    print(whatif_headline(result))
    print_rich(whatif_table(result))
    if top and result.sensitivities:
        print_rich(sensitivity_table(result, top))
    print_lines([*whatif_why_lines(result), *whatif_reason_lines(result), *result.notes], out)


@whatif_app.command("eight-bit", cls=GroupedCommand)
@takes_requests
def orrery_whatif_eight_bit(
    *,
    cluster: ClusterOption,
    model: Annotated[str, typer.Option(metavar="M", help="Model, such as alexnet or vgg16.")],
    request: CompressionRequest,
    batch_per_device: Annotated[int, typer.Option(min=1, metavar="B", help="Samples of each device.")] = 128,
    out: _OutOption = None,
    json: JsonOption = False,
) -> None:
    """Sweep sub-batches, data types, devices and link speed for the points from which compression pays.

    Every point is a simulated plan, which splits samples in the first layers, channels in the fully connected ones.
    """
    from hwprofiles.catalogue.cluster_catalogue import load_cluster
    from planner.models.registry import load_model
    from reports.pages.eight_bit_page import eight_bit_html
    from reports.tables.eight_bit_tables import compression_table, crossing_lines, eight_bit_headline
    from studies.eight_bit.compression_sweep import sweep_compression

    with out_files(out) as files, progress_bar(model) as progress:
        graph = load_model(model, batch=batch_per_device)
        sweep = sweep_compression(graph, load_cluster(cluster), request, progress)
        values = sweep.values()
        write_results(files, lambda: eight_bit_html(sweep), values)
    if json:
        return print_json(values)
    print_rich(compression_table(sweep))
    print_lines([eight_bit_headline(sweep), *crossing_lines(sweep), *sweep.notes], out)
