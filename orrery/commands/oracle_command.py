"""``orrery oracle``: strategies from few devices to many, by the closed forms of ParaDL."""

from dataclasses import replace
from typing import Annotated

import typer

from orrery.terminal.options import ClusterOption, JsonOption, ModelArgument
from orrery.terminal.output import Out, out_files, out_option, print_json, print_lines, write_results
from orrery.terminal.progress import progress_bar
from orrery.terminal.request_options import takes_requests
from orrery.terminal.signals import kept
from orrery.terminal.views import print_rich
from studies.oracle.oracle_request import OracleRequest

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
    from reports.tables.oracle_tables import booking_line, limit_lines, oracle_headline, oracle_table, refused_lines
    from studies.oracle.projection import oracle

    if batch is not None and request.batch_per_device is not None:
        raise ConfigError("batch must be given for all devices or a device, got both --batch and --batch-per-gpu")
    if batch is None and request.batch_per_device is None:
        request = replace(request, batch_per_device=_BATCH_PER_DEVICE)
    with out_files(out) as files, progress_bar(model) as progress:
        graph = load_model(model, batch=batch or request.batch_per_device or 1)
        table = kept(oracle, graph, load_cluster(cluster), request, progress=progress)
        values = table.values()
        write_results(files, lambda: oracle_html(table), values)
    if json:
        return print_json(values)
    print_rich(oracle_table(table))
    first = [oracle_headline(table), booking_line(table)]
    print_lines([*first, *limit_lines(table), *refused_lines(table), *table.notes], out)
