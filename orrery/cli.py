"""The command line: all commands under one program.  Whatever is heavy is imported inside the commands."""

import os
from typing import Annotated

import typer

from groundwork.input_files import INPUT_LIMIT
from groundwork.requests import whole_number
from orrery.commands.accuracy_command import orrery_accuracy
from orrery.commands.compare_command import orrery_compare
from orrery.commands.fidelity_command import orrery_fidelity, orrery_reproduce
from orrery.commands.lab_command import lab_app
from orrery.commands.look_up_command import (
    orrery_clusters,
    orrery_completion,
    orrery_devices,
    orrery_import,
    orrery_models,
)
from orrery.commands.oracle_command import orrery_oracle
from orrery.commands.pages_command import orrery_index, orrery_show, orrery_timeline
from orrery.commands.plan_command import orrery_plan
from orrery.commands.run_command import orrery_run
from orrery.commands.serve_command import orrery_serve
from orrery.commands.simulate_command import orrery_analyse, orrery_replay, orrery_simulate
from orrery.commands.streams_command import orrery_streams
from orrery.commands.sweep_command import orrery_results, orrery_sweep
from orrery.commands.validate_command import orrery_validate
from orrery.measuring.calibrate_command import orrery_calibrate
from orrery.measuring.chakra_command import chakra_app
from orrery.measuring.probe_command import orrery_probe
from orrery.measuring.read_command import orrery_read
from orrery.measuring.trace_command import orrery_trace
from orrery.questions.size_command import size_app
from orrery.questions.whatif_command import whatif_app
from orrery.terminal.command_groups import CommandGroups, GroupedCommand

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
        from simulator.graph.memory_need import MEMORY_LIMIT

        os.environ[MEMORY_LIMIT] = str(max_memory_gib)


app.add_typer(lab_app, name="lab")
app.add_typer(whatif_app, name="whatif")
app.add_typer(size_app, name="size")
app.add_typer(chakra_app, name="chakra")
