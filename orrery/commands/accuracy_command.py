"""``orrery accuracy``: train with messages in every data type, and compare the accuracies."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orrery.terminal import Json, Page, page_files, print_json, print_rich, progress_bar, to_json

if TYPE_CHECKING:
    from executor.accuracy import AccuracyResult

__all__ = ["accuracy"]


def accuracy(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model, such as digits or mnist-mlp.")] = "digits",
    *,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the MNIST files; else scikit-learn's digits.")
    ] = None,
    types: Annotated[
        str, typer.Option(metavar="T,T,...", help="Data types, such as dynamic-tree:block=64; else every one.")
    ] = "",
    modes: Annotated[
        str, typer.Option(metavar="M,M", help="data: gradients compressed; model: activations and their gradients.")
    ] = "data,model",
    seeds: Annotated[int, typer.Option(metavar="N", help="Trainings of each type and mode.")] = 5,
    epochs: Annotated[int, typer.Option(metavar="N", help="Of each training.")] = 25,
    batch: Annotated[int, typer.Option(metavar="N", help="Samples in a mini-batch, all ranks.")] = 240,
    processes: Annotated[int, typer.Option(metavar="N", help="Ranks; started once for all trainings.")] = 2,
    optimizer: Annotated[Literal["sgd", "adam"], typer.Option(help="Optimizer.")] = "sgd",
    learning_rate: Annotated[float, typer.Option(metavar="R", help="Its learning rate.")] = 0.2,
    momentum: Annotated[float, typer.Option(metavar="M", help="Of sgd.")] = 0.0,
    out: Page = None,
    json: Json = False,
) -> None:
    """Train by plans of ours with messages in every data type, and compare with float32 on samples held out."""
    from executor.runtime import check_torch

    check_torch("accuracy")
    from executor.accuracy import AccuracyRequest, accuracy_study
    from executor.runtime import OptimizerSpec
    from reports.pages import write_accuracy_page
    from studies.eight_bit import type_list

    with page_files(out, "accuracy.json") as files, progress_bar(model) as progress:
        question = AccuracyRequest(
            model=model,
            data=str(data or ""),
            modes=tuple(word.strip() for word in modes.split(",")),
            types=type_list(types) if types else (),
            seeds=seeds,
            epochs=epochs,
            batch=batch,
            processes=processes,
            optimizer=OptimizerSpec(name=optimizer, learning_rate=learning_rate, momentum=momentum),
        )
        result = accuracy_study(question, progress=progress)
        values = result.values()
        if files:
            write_accuracy_page(result, files[0])
            files[1].write_bytes(to_json(values))
    print_json(values) if json else _show(result, out)


def _show(result: "AccuracyResult", out: Path | None) -> None:
    from reports.tables import accuracy_headline, accuracy_table, remarks

    print_rich(accuracy_table(result))
    lines = [accuracy_headline(result), *remarks(result)]
    print("\n".join([*lines, f"page: {out / 'index.html'}"] if out else lines))
