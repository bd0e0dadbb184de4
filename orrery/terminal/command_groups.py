"""The order of ``--help``: commands in groups, each with its whole sentence; many options of a command likewise."""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

_GROUPS = {
    "Look up": {"look_up": "models clusters devices completion import"},
    "Plan and simulate": {
        "plan": "plan",
        "simulate": "simulate replay analyse",
        "compare": "compare",
        "oracle": "oracle",
        "streams": "streams",
    },
    "Compare many cases": {
        "size": "size",
        "whatif": "whatif",
        "sweep": "sweep results",
    },
    "Run and measure": {
        "run": "run",
        "read": "read",
        "probe": "probe",
        "calibrate": "calibrate",
        "trace": "trace",
        "chakra": "chakra",
        "validate": "validate",
        "lab": "lab",
        "accuracy": "accuracy",
    },
    "Pages and papers": {
        "pages": "show timeline index",
        "serve": "serve",
        "fidelity": "reproduce fidelity",
    },
}
"""Commands in the order in which they are usually needed, by the modules that define them (``*_command``)."""

_OPTION_GROUPS = {
    "What is planned": (
        "model cluster batch batch_per_device devices dataset group strategy strategies mesh refine segments "
        "schedules device changes link_speeds link_class link loss"
    ),
    "Training software and arithmetic": (
        "dtype parameter_dtype gradient_dtype message_dtype master_dtype state_dtype framework software "
        "input_images_per_s gradient_sync gradient_sync_order gradient_sync_orders batch_norm interference spread "
        "occupancy_model alpha beta method hold_mib max_streams"
    ),
    "Micro-batches and pipelines": (
        "sub_batches sub_batch_from sub_batch_order update_each stages micro_batches schedule stage_at"
    ),
    "Compression": "compress compress_gradients compress_activations compress_where exact stand_in_compression",
    "Memory": "recompute memory_reuse memory",
    "Deadline and price": "epochs within price money device_hours most_devices budget_gpu_hours",
    "Training": "data modes types seeds steps seed optimizer learning_rate momentum weight_decay",
    "Failures and checkpoints": "node_mtbf checkpoint checkpoint_every restart resume init save",
    "Simulation and measurement": (
        "overlap contention iterations expand_collectives engine stand_in stand_in_compute rounds budget_s "
        "repetitions tries run simulate lab"
    ),
    "Processes": "processes threads cores critical_cores interface secret_file no_secret stall_timeout",
    "Output": "top out trace html csv parquet graph copy json help",
}
"""Options of all commands by their parameters' names, in the order in which they are usually decided."""
_STRATEGIES = "--strategies"
_MANY = 12
"""Options of a command from which on they stand in groups."""


class GroupedCommand(TyperCommand):
    """A command whose options, where there are many, stand in groups in its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command; strategies of several options are all meant, not only those of the last."""
        return super().parse_args(ctx, _with_joined(_STRATEGIES, args))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for the arguments, and one for each group of options."""
        options = [each for each in self.get_params(ctx) if each.param_type_name == "option"]
        if len(options) < _MANY:
            super().format_options(ctx, formatter)
            return
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        named = " ".join(_OPTION_GROUPS.values()).split()
        groups = {
            "Arguments": arguments,
            **{
                title: [each for each in options if each.name in names.split()]
                for title, names in _OPTION_GROUPS.items()
            },
            "Others": [each for each in options if each.name not in named],
        }
        for title, each in groups.items():
            if records := [record for one in each if (record := one.get_help_record(ctx))]:
                with formatter.section(title):
                    formatter.write_dl(records)


def _with_joined(option: str, words: Sequence[str]) -> list[str]:
    """Return words in which an option that is given several times is given once, with all values as a list."""
    split = [part for word in words for part in (word.split("=", 1) if word.startswith(f"{option}=") else [word])]
    at = [place for place, word in enumerate(split) if word == option and place + 1 < len(split)]
    if len(at) < 2:
        return [*words]
    values = ";".join(split[place + 1] for place in at)
    others = [word for place, word in enumerate(split) if place not in at and place - 1 not in at]
    return [option, values, *others]


class _Commands(Mapping[str, Any]):
    """The commands by their names; each is loaded when it is first asked for, as most runs need one."""

    def __init__(self) -> None:
        self._modules = {
            name: f"orrery.commands.{module}_command"
            for group in _GROUPS.values()
            for module, names in group.items()
            for name in names.split()
        }
        self._loaded = dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load(name, import_module(self._modules[name]))
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


def _load(name: str, module: ModuleType) -> Any:
    """Return the command, or the group of commands, that a module defines under a name."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    if group := getattr(module, f"{name}_app", None):
        app.add_typer(group, name=name)
        return cast(TyperGroup, get_command(app)).commands[name]
    app.command(name, cls=GroupedCommand)(getattr(module, f"orrery_{name}"))
    return get_command(app)


class CommandGroups(TyperGroup):
    """Commands in groups, in the order in which they are usually needed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()  # type: ignore[assignment]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each group."""
        width = max(map(len, self.commands))
        for title, group in _GROUPS.items():
            with formatter.section(title):
                names = " ".join(group.values()).split()
                sentences = [self.commands[name].get_short_help_str(limit=400) for name in names]
                formatter.write_dl([(name.ljust(width), said) for name, said in zip(names, sentences, strict=True)])
