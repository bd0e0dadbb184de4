"""``orrery oracle``: strategies from few devices to many, by the closed forms of ParaDL."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orrery.terminal.options import ClusterOption, JsonOption, ModelArgument
from orrery.terminal.output import Out, out_files, out_option, print_json, to_json
from orrery.terminal.progress import progress_bar
from orrery.terminal.request_options import takes_requests
from orrery.terminal.signals import kept
from orrery.terminal.views import print_rich
from studies.oracle.oracle_request import OracleRequest

if TYPE_CHECKING:
    from studies.oracle.oracle_table import OracleTable


_OutOption = Annotated[Out | None, out_option("index.html", "oracle.json")]
_BATCH_PER_DEVICE = 32
"""Samples on each device where no batch is given."""


@takes_requests
def orrery_oracle(
    model: ModelArgument,
    *,
    cluster: ClusterOption,
    request: OracleRequest,
    batch: Annotated[
        int | None,
        typer.Option(min=1, metavar="B", help="Strong scaling: B samples in a mini-batch, on however many devices."),
    ] = None,
    out: _OutOption = None,
    json: JsonOption = False,
) -> None:
    """Project every strategy from few devices to many: times, memory, limits, and the fastest."""
    from groundwork.errors import ConfigError
    from hwprofiles.catalogue.cluster_catalogue import load_cluster
    from planner.models.registry import load_model
    from reports.pages.oracle_page import oracle_html
    from reports.pages.page_template import write_page
    from studies.oracle.projection import oracle

    if batch is not None and request.batch_per_device is not None:
        raise ConfigError("batch must be given for all devices or a device, got both --batch and --batch-per-gpu")
    if batch is None and request.batch_per_device is None:
        request = replace(request, batch_per_device=_BATCH_PER_DEVICE)
    with out_files(out) as files, progress_bar(model) as progress:
        graph = load_model(model, batch=batch or request.batch_per_device or 1)
        table = kept(oracle, graph, load_cluster(cluster), request, progress=progress)
        values = table.values()
        if files:
            write_page(oracle_html(table), files[0])
            files[1].write_bytes(to_json(values))
    print_json(values) if json else _show(table, out)


def _show(table: "OracleTable", out: Out | None) -> None:
    """Print the projection as a table, then the headline, limits and notes."""
    from reports.tables.oracle_tables import booking_line, limit_lines, oracle_headline, oracle_table, refused_lines

    print_rich(oracle_table(table))
    lines: list[Any] = [
        oracle_headline(table),
        booking_line(table),
        *limit_lines(table),
        *refused_lines(table),
        *table.notes,
    ]
    print("\n".join([*lines, f"page: {out.files[0]}"] if out else lines))
