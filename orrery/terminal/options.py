"""Arguments and options that several commands share; those of one request stand in its dataclass."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hwprofiles import whole_number
from orrery.terminal.completion import COMPLETERS
from planner.plan import SyncAlgorithm

__all__ = [
    "BatchOption",
    "ClusterOption",
    "EngineOption",
    "JsonOption",
    "ModelArgument",
    "PageOption",
    "PlanArgument",
    "RefineOption",
    "StrategiesOption",
    "SyncOption",
    "TraceOption",
]

PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file.")]
ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="Model, such as vgg16 or vgg16:classes=21841.", autocompletion=COMPLETERS["model"]
    ),
]
ClusterOption = Annotated[
    str,
    typer.Option(
        metavar="C",
        help="Cluster of the catalogue, such as p100-4x4:nodes=8, or a cluster file.",
        autocompletion=COMPLETERS["cluster"],
    ),
]
BatchOption = Annotated[
    int, typer.Option(parser=whole_number, metavar="N", help="Samples in a mini-batch, over all devices.")
]
SyncOption = Annotated[
    SyncAlgorithm | None,
    typer.Option(
        help="All-reduce that synchronises gradients; auto picks the fastest for each layer; else library, where the "
        "cluster describes one, or ring."
    ),
]
EngineOption = Annotated[
    Literal["auto", "compiled", "simpy"], typer.Option(help="Engine that replays; all give the same times.")
]
RefineOption = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Plans to simulate to improve on the layer-wise optimum; 0 compares it with the usual strategies only.",
    ),
]
StrategiesOption = Annotated[
    str,
    typer.Option(metavar="S,S,...", help="Strategies, separated by commas.", autocompletion=COMPLETERS["strategies"]),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value (seconds, bytes) and nothing else.")]
PageOption = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the page and its numbers.")]
TraceOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Chrome trace to write, for Perfetto.")]
