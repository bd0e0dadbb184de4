"""Arguments and options that several commands share; those of one request stand in its dataclass."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from groundwork.requests import option, whole_number
from orrery.terminal.completion import COMPLETERS
from planner.plan.plan_options import Precision, SyncAlgorithm

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
EngineOption = Annotated[
    Literal["auto", "compiled", "simpy"], typer.Option(help="Engine that replays; all give the same times.")
]
StrategiesOption = Annotated[
    str,
    typer.Option(metavar="S,S,...", help="Strategies, separated by commas.", autocompletion=COMPLETERS["strategies"]),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value (seconds, bytes) and nothing else.")]
PriceOption = Annotated[
    list[str] | None,
    typer.Option("--price", metavar="[C=]X", help="Money for an hour of one device, of cluster C or of all."),
]
TraceOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Chrome trace to write, for Perfetto.")]


def price_of(cluster: str, words: list[str] | None) -> float | None:
    """Return the price of an hour of one device of a cluster, of ``PriceOption``; None where none was given.

    Raises:
        ConfigError: A price is no number > 0, or one of another cluster.
    """
    from studies.size.typed_values import read_prices

    prices = read_prices(words or [], [cluster])
    return prices.get(cluster, prices.get(""))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionModel:
    """How a plan is replayed."""

    overlap: bool = option(True, help="Start each task once its inputs are there, not at a barrier between phases.")
    contention: bool = option(True, help="Let transfers share the links and devices that they have in common.")
    interference: bool | None = option(
        None, help="Let messages and arithmetic take from one another; else as the plan says."
    )
    spread: bool | None = option(None, help="Let iterations wait for the slowest rank; else as the plan says.")
    seed: int | None = option(
        None, help="Draw the time of every rank in every iteration, where there is a spread.", metavar="N", low=0
    )
    iterations: int | None = option(
        None, help="Iterations to replay; else one, or four where they overlap.", metavar="K", parser=whole_number
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedConditions:
    """The conditions under which strategies are compared."""

    dtype: Precision = option("float32", help="Data type of tensors and messages; float16 keeps master weights.")
    framework: str | None = option(
        None,
        help="Training software that synchronises gradients: ideal, ddp, horovod or ps; else ddp where the cluster "
        "describes a library of collectives, or ideal.",
        metavar="F",
    )
    software: str = option(
        "ideal", help="Software of one device, such as pytorch or torch-compile: its kernels and launches.", metavar="W"
    )
    input_images_per_s: float | None = option(
        None,
        help="Samples a second that storage and decoding bring to all devices together; else no bound.",
        metavar="R",
    )
    interference: bool | None = option(
        None, help="Let messages and arithmetic take from one another; else where the cluster declares channels."
    )
    spread: bool | None = option(
        None, help="Let iterations wait for the slowest rank; else where the cluster declares a spread."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedConditions(ComparedConditions):
    """The conditions under which plans are made, with the algorithm that synchronises their gradients."""

    gradient_sync: SyncAlgorithm | None = option(
        None, help="All-reduce that synchronises gradients; else library, where the cluster describes one, or ring."
    )
