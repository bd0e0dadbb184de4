"""The command line: all commands under one program.  Whatever is heavy is imported inside the commands."""

import os
from typing import Annotated

import typer

from groundwork.input_files import INPUT_LIMIT
from groundwork.requests import whole_number
from orrery.terminal.command_groups import CommandGroups

app = typer.Typer(
    cls=CommandGroups,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help, in half the time
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print("orrery", version("orrery-training"))
        raise typer.Exit


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
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Plan, simulate and compare the parallel training of neural networks on clusters."""
    if max_input_mib:
        os.environ[INPUT_LIMIT] = str(max_input_mib)  # also for the processes of this command
    if max_memory_gib:
        from simulator.graph.memory_need import MEMORY_LIMIT

        os.environ[MEMORY_LIMIT] = str(max_memory_gib)
