"""The list of commands in ``orrery --help``: in groups, each command with its whole sentence."""

from typing import Any

from typer.core import TyperGroup

__all__ = ["CommandGroups"]

_GROUPS = {
    "Look up": ("models", "clusters", "devices", "completion", "import"),
    "Plan and simulate": ("plan", "simulate", "replay", "analyse", "compare", "oracle", "streams"),
    "Compare many cases": ("size", "whatif", "sweep", "results"),
    "Run and measure": ("run", "read", "probe", "calibrate", "trace", "chakra", "validate", "lab", "accuracy"),
    "Pages and papers": ("show", "timeline", "index", "serve", "reproduce", "fidelity"),
}


class CommandGroups(TyperGroup):
    """Commands in groups, in the order in which they are usually needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the groups; a command of no group comes last."""
        grouped = [name for names in _GROUPS.values() for name in names]
        return [*grouped, *(name for name in self.commands if name not in grouped)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each group."""
        others = tuple(name for name in self.list_commands(ctx) if not any(name in group for group in _GROUPS.values()))
        width = max(map(len, self.commands))
        for title, names in {**_GROUPS, "Others": others}.items():
            if names:
                with formatter.section(title):
                    sentences = [self.commands[name].get_short_help_str(limit=400) for name in names]
                    formatter.write_dl([(name.ljust(width), said) for name, said in zip(names, sentences, strict=True)])
