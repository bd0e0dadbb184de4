"""The command line: all commands under one program.  Whatever is heavy is imported inside the commands."""

import os
from typing import Annotated

import typer

from hwprofiles import INPUT_LIMIT, whole_number
from orrery.commands import (
    lab_app,
    orrery_accuracy,
    orrery_analyse,
    orrery_clusters,
    orrery_compare,
    orrery_completion,
    orrery_devices,
    orrery_fidelity,
    orrery_import,
    orrery_index,
    orrery_models,
    orrery_oracle,
    orrery_plan,
    orrery_replay,
    orrery_reproduce,
    orrery_results,
    orrery_run,
    orrery_serve,
    orrery_show,
    orrery_simulate,
    orrery_streams,
    orrery_sweep,
    orrery_timeline,
    orrery_validate,
)
from orrery.measuring import chakra_app, orrery_calibrate, orrery_probe, orrery_read, orrery_trace
from orrery.questions import size_app, whatif_app
from orrery.terminal import CommandGroups, GroupedCommand

__all__ = ["app"]

app = typer.Typer(
    cls=CommandGroups,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help, in half the time
)
for command in (
    orrery_models,
    orrery_clusters,
    orrery_devices,
    orrery_completion,
    orrery_import,
    orrery_plan,
    orrery_simulate,
    orrery_replay,
    orrery_analyse,
    orrery_compare,
    orrery_fidelity,
    orrery_reproduce,
    orrery_accuracy,
    orrery_run,
    orrery_read,
    orrery_probe,
    orrery_calibrate,
    orrery_trace,
    orrery_validate,
    orrery_oracle,
    orrery_streams,
    orrery_sweep,
    orrery_results,
    orrery_timeline,
    orrery_show,
    orrery_index,
    orrery_serve,
):
    app.command(command.__name__.removeprefix("orrery_"), cls=GroupedCommand)(command)


@app.callback()
def _limits(
    max_input_mib: Annotated[
        int | None,
        typer.Option(
            parser=whole_number, metavar="MIB", help="Largest file that is read, in place of each kind's limit."
        ),
    ] = None,
    max_memory_gib: Annotated[
        int | None,
        typer.Option(parser=whole_number, metavar="GIB", help="Most memory that a replay may take, in place of 4 GiB."),
    ] = None,
) -> None:
    """Plan, simulate and compare the parallel training of neural networks on clusters."""
    if max_input_mib:
        os.environ[INPUT_LIMIT] = str(max_input_mib)  # also for the processes of this command
    if max_memory_gib:
        from simulator.graph import MEMORY_LIMIT

        os.environ[MEMORY_LIMIT] = str(max_memory_gib)


app.add_typer(lab_app, name="lab")
app.add_typer(whatif_app, name="whatif")
app.add_typer(size_app, name="size")
app.add_typer(chakra_app, name="chakra")
