"""Completion in shells: scripts for Bash, Zsh and Fish, and the names of models, clusters and strategies."""

import os
from collections.abc import Callable, Sequence

_VARIABLE = "_ORRERY_COMPLETE"
"""Variable by which the scripts ask this program for words."""


def completion_script(shell: str) -> str:
    """Return the script that completes ``orrery`` in a shell."""
    from typer._completion_shared import get_completion_script

    return get_completion_script(prog_name="orrery", complete_var=_VARIABLE, shell=shell)


def prepare_completion() -> None:
    """Make the shells known where a script asks for words; nothing otherwise."""
    if _VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()


def _models() -> Sequence[str]:
    from planner.models.registry import model_names

    return model_names()


def _clusters() -> Sequence[str]:
    from hwprofiles.catalogue.cluster_catalogue import cluster_names

    return cluster_names()


def _strategies() -> Sequence[str]:
    from hwprofiles.plugins.entry_points import plugin_names
    from planner.strategies.named_rules import NAMED
    from planner.strategies.named_strategies import SEARCHED

    return [*NAMED, *SEARCHED, "pipeline", *plugin_names("strategies")]


def _completer(names: Callable[[], Sequence[str]]) -> Callable[[str], list[str]]:
    """Return a function as typer calls it, with what is typed so far."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in dict.fromkeys(names()) if name.startswith(last)]

    return complete


COMPLETERS = {
    "model": _completer(_models),
    "cluster": _completer(_clusters),
    "strategy": _completer(_strategies),
    "strategies": _completer(_strategies),
}
"""Functions that complete values, by the name of the option or argument."""
