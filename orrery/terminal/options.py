"""Arguments and options of the command line that several commands share, and those of a plan, each said once."""

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "Batch",
    "BatchNorm",
    "Cluster",
    "CompressActivations",
    "CompressGradients",
    "CompressWhere",
    "Device",
    "Engine",
    "Exchange",
    "ExchangeOrder",
    "Json",
    "MicroBatches",
    "Model",
    "Numbers",
    "Optimizer",
    "Page",
    "PlanFile",
    "Recompute",
    "Refine",
    "Schedule",
    "Seed",
    "StageAt",
    "Stages",
    "StandInCompute",
    "Strategies",
    "Strategy",
    "SubBatchFrom",
    "SubBatchOrder",
    "SubBatches",
    "Threads",
    "Trace",
    "UpdateEach",
    "whole_number",
]


def whole_number(word: str | int) -> int:
    """A number of things, at least one.

    Raises:
        typer.BadParameter: It is none.
    """
    text = str(word)  # defaults pass here as numbers
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise typer.BadParameter(f"must be a whole number >= 1, got {text!r}")
    return int(text)


PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="Model, such as vgg16 or vgg16:classes=21841.")]
Cluster = Annotated[str, typer.Option(metavar="C", help="Cluster of the catalogue, such as p100-4x4:nodes=8, or file.")]
Batch = Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Samples in a mini-batch, all devices.")]
Exchange = Annotated[
    Literal[
        "ring", "ps", "ps-spread", "tree", "double-tree", "halving", "direct", "hierarchical", "hierarchical-3", "auto"
    ],
    typer.Option(help="How gradients are exchanged; auto: as is cheapest for each size and place."),
]
ExchangeOrder = Annotated[
    Literal["end", "ready", "reuse"],
    typer.Option(help="All updates last; or each behind its sum, sums as gradients come, or first layers first."),
]
Engine = Annotated[Literal["auto", "compiled", "simpy"], typer.Option(help="Engine that replays.")]
Refine = Annotated[
    int,
    typer.Option(min=0, metavar="N", help="Plans to simulate from which layerwise is improved; 0: candidates only."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value (seconds, bytes) and nothing else.")]
Strategy = Annotated[str, typer.Option(metavar="S", help="Strategy's name, or a strategy file.")]
BatchNorm = Annotated[
    Literal["local", "reduced"],
    typer.Option(help="Normalise by the statistics of each part, or of the whole batch, summed over the parts."),
]
Numbers = Annotated[Literal["float32", "float64"], typer.Option(help="Numbers of the tensors.")]
SubBatches = Annotated[
    int, typer.Option(parser=whole_number, metavar="K", help="Sub-batches of the last layers, one by one.")
]
SubBatchFrom = Annotated[
    str, typer.Option(metavar="LAYER", help="First layer that takes sub-batches; else the first fully connected.")
]
SubBatchOrder = Annotated[
    Literal["each", "all"], typer.Option(help="Each forward and back before the next, or all forward, then back.")
]
UpdateEach = Annotated[bool, typer.Option("--update-each", help="Update after every sub-batch, not once an iteration.")]
Stages = Annotated[
    int | None, typer.Option(parser=whole_number, metavar="S", help="Stages of a pipeline; else one a device.")
]
MicroBatches = Annotated[
    int | None, typer.Option(parser=whole_number, metavar="M", help="Micro-batches of a pipeline; else up to 4 S.")
]
Schedule = Annotated[
    str, typer.Option(metavar="K", help="Of a pipeline: gpipe, 1f1b, the default, interleaved, zero-bubble.")
]
StageAt = Annotated[
    str, typer.Option(metavar="LAYERS", help="First layers of a pipeline's later stages; else the fastest cut.")
]
CompressGradients = Annotated[
    str, typer.Option(metavar="TYPE", help="Data type of gradients in their exchange, such as dynamic-tree.")
]
CompressActivations = Annotated[
    str, typer.Option(metavar="TYPE", help="Data type of tensors between layers, and of their gradients.")
]
CompressWhere = Annotated[
    Literal["all", "pays"], typer.Option(help="Compress all of them, or what shortens the simulated iteration.")
]
Recompute = Annotated[
    str, typer.Option(metavar="R", help="Activations computed again: none, segments, or last layers of segments, A,B.")
]
Optimizer = Annotated[
    Literal["sgd", "momentum", "adam"], typer.Option(help="Whose state must fit beside the parameters.")
]
Strategies = Annotated[str, typer.Option(metavar="S,S,...", help="Strategies, separated by commas.")]
Page = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the page and its numbers.")]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="auto: a GPU a rank where there is one.")]
Threads = Annotated[int, typer.Option(min=0, metavar="T", help="Of each rank; 0: the cores, shared equally.")]
Seed = Annotated[int, typer.Option(metavar="S", help="Of first values, data, dropout and order of turns.")]
Trace = Annotated[Path | None, typer.Option(metavar="FILE", help="Chrome trace to write, for Perfetto.")]
StandInCompute = Annotated[
    bool, typer.Option("--stand-in-compute", help="Wait for the predicted time instead of computing.")
]
