"""The catalogues: ``orrery models``, ``clusters``, ``devices``; ``orrery import``: models from outside; completion."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from orrery.terminal.options import JsonOption
from orrery.terminal.output import Out, out_files, out_option, print_json
from orrery.terminal.progress import progress_bar
from orrery.terminal.views import cluster_row, model_row, print_pairs, print_table, profile_row

if TYPE_CHECKING:
    from planner.importing.graph_of import ImportedModel
    from planner.tracing.trace import Trace


_LINES = 12
"""Rows of a table that are printed; JSON has all."""


def orrery_models(*, json: JsonOption = False) -> None:
    """List the models, built in and of plug-ins, with their sizes."""
    from hwprofiles.plugins.entry_points import working
    from planner.models.registry import model_names

    with progress_bar("building models"):
        rows = working("models", model_names(), model_row)
    print_json(rows) if json else print_table(rows)


def orrery_clusters(*, json: JsonOption = False) -> None:
    """List the clusters of the catalogue and of plug-ins."""
    from hwprofiles.catalogue.cluster_catalogue import cluster_names, describe_cluster
    from hwprofiles.plugins.entry_points import working

    summaries = working("clusters", cluster_names(), describe_cluster)
    print_json(summaries) if json else print_table([cluster_row(summary) for summary in summaries])


def orrery_devices(*, json: JsonOption = False) -> None:
    """List the compute profiles: peaks, memory, and errors on measured rows that were left out of the fit."""
    from hwprofiles.compute.profile_file import profile_names
    from hwprofiles.compute.profile_summary import describe_profile
    from hwprofiles.plugins.entry_points import working

    summaries = working("devices", profile_names(), describe_profile)
    print_json(summaries) if json else print_table([profile_row(summary) for summary in summaries])


def orrery_import(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="package.module:function, FILE.py:function, a function of --model-file, a .pt2 or an .onnx file, a "
            "published config.json, or a model of the catalogue, to edit it.",
        ),
    ],
    *,
    input: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SIZES",
            help="Sizes of an input, the batch first: 32x3x224x224, or 8x128:int for whole numbers; NAME=SIZES for an "
            "argument by name; once for each input; of a config.json one sample of what it says.",
        ),
    ] = None,
    model_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Python file that holds the function.")
    ] = None,
    out: Annotated[Out, out_option("model.yaml", also=(".yml",))],
    loss: Annotated[
        str | None,
        typer.Option(
            metavar="LOSS",
            help="Loss behind what the model returns: softmax, softmax_per_position, mean_squared_error or none; "
            "default softmax, of a config.json what its architecture is trained with.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Import a model of PyTorch or ONNX: layers, shapes, parameters and the dimensions that each may be split in."""
    from planner.importing.graph_of import check_loss, imported_graph
    from planner.model_files.model_text import model_text

    check_loss(loss or _LOSS)
    (path,) = out.files
    with out_files(out) as (file,), progress_bar(f"importing {model}"):
        imported, notes = None if model_file else _of_catalogue(model, bool(input or loss)), tuple[str, ...]()
        if imported is None:
            trace, own_loss, notes = _trace(model, input or [], model_file)
            imported = imported_graph(trace, name=str(path), loss=loss or own_loss)
        file.write_text(model_text(imported.graph, heading=[*_heading(model, imported), *notes]))
    values = {**_values(imported), "notes": list(notes)}
    print_json({"model": str(path), **values}) if json else _print_import(path, values)


def _print_import(path: Path, values: dict[str, Any]) -> None:
    """Print sizes, then what was fused, what samples alone can be split in, and what was left out."""
    print_pairs({"model file": str(path), **{key: values[key] for key in _NUMBERS}})
    several = values["inputs"] if len(values["inputs"]) > 1 else []
    for title, rows in (
        ("inputs", several),
        ("fused", values["fused"]),
        ("split by samples alone", values["by_sample"]),
    ):
        if rows:
            print(f"\n{title}{f', the first {_LINES} of {len(rows)}' if len(rows) > _LINES else ''}:")
            print_table(rows[:_LINES])
    for note in values["notes"]:
        print(note)
    for title in ("unused_parameters", "dropped_outputs"):
        if values[title]:
            print(f"\n{title.replace('_', ' ')}: {', '.join(values[title][:_LINES])}")


_LOSS = "softmax"
"""Loss behind a model that does not say what it is trained with."""
_CATALOGUE_BATCH = 2
"""Samples that the file of a model of the catalogue says; plans take any."""
_NUMBERS = ("batch", "layers", "parameters", "forward_flop_per_sample")


def _of_catalogue(model: str, described: bool) -> "ImportedModel | None":
    """Return a model of the catalogue, with its parameters, as an import of all its layers; None for other models."""
    from groundwork.errors import ConfigError
    from planner.importing.graph_of import ImportedModel
    from planner.model_files.own_models import names_code
    from planner.models.registry import load_model, model_names

    if model.partition(":")[0] not in model_names() or (described and names_code(model)):
        return None
    if described:
        raise ConfigError(f"input and loss must be left out with {model}, a model of the catalogue")
    graph = load_model(model, batch=_CATALOGUE_BATCH)
    inputs = tuple((name, name) for name in graph.data)
    return ImportedModel(graph=graph, inputs=inputs, fused=(), by_sample=(), unread=(), dropped=())


def _trace(model: str, inputs: list[str], model_file: Path | None) -> "tuple[Trace, str, tuple[str, ...]]":
    """Return the program of a model, the loss that it is trained with, and what a user should know of it."""
    from groundwork.errors import ConfigError
    from planner.tracing.exported import trace_of
    from planner.tracing.inputs import input_specs
    from planner.tracing.pt2_file import trace_of_pt2
    from planner.tracing.user_code import built_module

    if Path(model).suffix == ".pt2":
        if inputs or model_file:
            raise ConfigError("input and model-file must be left out with .pt2 files, whose sizes are fixed")
        return trace_of_pt2(Path(model)), _LOSS, ()
    if Path(model).suffix == ".onnx":
        from planner.onnx_files.trace_of_onnx import trace_of_onnx

        if model_file:
            raise ConfigError("model-file must be left out with .onnx files, which hold no code")
        return trace_of_onnx(Path(model), input_specs(inputs) if inputs else ()), _LOSS, ()
    if Path(model).suffix == ".json":
        if model_file:
            raise ConfigError("model-file must be left out with a configuration, which names no code")
        from executor.runtime.requirements import check_torch

        check_torch("import")
        from executor.families.published import configured_model

        found = configured_model(Path(model), input_specs(inputs) if inputs else ())
        return trace_of(found.module, found.inputs), found.loss, found.notes
    specs = input_specs(inputs)
    return trace_of(built_module(model, file=model_file), specs), _LOSS, ()


def _values(imported: "ImportedModel") -> dict[str, Any]:
    """Return what an import has found."""
    graph = imported.graph
    return {
        "batch": graph.batch,
        "layers": len(graph.layers),
        "parameters": graph.parameter_count,
        "forward_flop_per_sample": imported.product_flop / graph.batch,
        "inputs": [{"input": name, "argument": argument} for name, argument in imported.inputs],
        "fused": [{"layer": row.into, "operations": " ".join(row.steps)} for row in imported.fused],
        "by_sample": [{"layer": n, "operation": o, "reason": why} for n, o, why in imported.by_sample],
        "unused_parameters": list(imported.unread),
        "dropped_outputs": list(imported.dropped),
    }


def _heading(model: str, imported: "ImportedModel") -> list[str]:
    """Return the comment at the top of a model file."""
    graph = imported.graph
    return [
        f"Imported from {model}: {graph.parameter_count:,} parameters,",
        f"{imported.product_flop / graph.batch:.6g} FLOP a sample in the forward products.",
    ]


def orrery_completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the script that completes commands, options, models, clusters and strategies in a shell."""
    from orrery.terminal.completion import completion_script

    print(completion_script(shell))
