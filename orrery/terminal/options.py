"""Arguments and options that several commands share; those of one request stand in its dataclass."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from groundwork.requests import whole_number
from orrery.terminal.completion import COMPLETERS

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
