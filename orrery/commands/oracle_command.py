"""``orrery oracle``: which strategy, on how many devices, by the closed forms of ParaDL."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orrery.terminal import Cluster, Json, Model, Page, page_files, print_json, print_rich, progress_bar, to_json

if TYPE_CHECKING:
    from studies.oracle import OracleTable

__all__ = ["oracle"]

BATCH_PER_GPU = 32
"""Samples a device where no batch is given."""


def oracle(
    model: Model,
    *,
    cluster: Cluster,
    dataset: Annotated[str, typer.Option(metavar="D", help="imagenet, cifar10, cosmoflow, or a number of samples.")],
    gpus: Annotated[
        str, typer.Option(metavar="P", help="Devices: 64, a list 4,16,64, or 16..1024 by doubling.")
    ] = "1..16",
    strategies: Annotated[str, typer.Option(metavar="S,S,...", help="Strategies; all if not given.")] = "",
    batch_per_gpu: Annotated[
        int | None,
        typer.Option(min=1, metavar="B", help="Weak scaling: strategies that split samples take B a device."),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, metavar="B", help="Strong scaling: one mini-batch, whatever the devices.")
    ] = None,
    segments: Annotated[
        int | None, typer.Option(min=1, metavar="S", help="Micro-batches of the pipeline; must divide its batch.")
    ] = None,
    group: Annotated[
        int | None, typer.Option(min=1, metavar="P2", help="Devices of a group in hybrids; else those of a node.")
    ] = None,
    memory_reuse: Annotated[
        float | None, typer.Option(metavar="GAMMA", help="Share of the counted activations alive at once.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, metavar="E", help="Epochs that the budget is for.")] = 1,
    budget_gpu_hours: Annotated[
        float | None, typer.Option(metavar="H", help="Device hours for all epochs together.")
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Replay every row as a plan, with overlap and contention, beside it.")
    ] = False,
    out: Page = None,
    json: Json = False,
) -> None:
    """Project every strategy from few devices to many: time, memory, limits, and the winner."""
    from hwprofiles import ConfigError
    from hwprofiles.catalogue import load_cluster
    from planner.models import load_model
    from reports.pages import write_oracle_page
    from studies.oracle import OracleOptions, device_counts, oracle as project, strategy_list

    if batch is not None and batch_per_gpu is not None:
        raise ConfigError("batch must be given for all devices or a device, got both --batch and --batch-per-gpu")
    per_device = batch_per_gpu or (None if batch else BATCH_PER_GPU)
    options = OracleOptions(segments=segments, group=group, memory_reuse=memory_reuse)
    with page_files(out, "oracle.json") as files, progress_bar(model) as progress:
        table = project(
            load_model(model, batch=batch or per_device or 1), load_cluster(cluster), dataset=dataset,
            devices=device_counts(gpus), strategies=strategy_list(strategies), batch_per_device=per_device,
            options=options, epochs=epochs, budget_gpu_hours=budget_gpu_hours, simulate=simulate, progress=progress,
        )  # fmt: skip
        values = table.values()
        if files:
            write_oracle_page(table, files[0])
            files[1].write_bytes(to_json(values))
    print_json(values) if json else _show(table, out)


def _show(table: "OracleTable", out: Path | None) -> None:
    from reports.tables import booking_line, limit_lines, oracle_headline, oracle_table, refused_lines

    print_rich(oracle_table(table))
    lines: list[Any] = [
        oracle_headline(table),
        booking_line(table),
        *limit_lines(table),
        *refused_lines(table),
        *table.notes,
    ]
    print("\n".join([*lines, f"page: {out / 'index.html'}"] if out else lines))
