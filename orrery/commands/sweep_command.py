"""``orrery sweep`` and ``orrery results``: many what-if points, and their results."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groundwork.requests import option
from orrery.terminal.options import JsonOption, PriceOption
from orrery.terminal.output import Out, out_files, out_option, print_json
from orrery.terminal.progress import progress_bar
from orrery.terminal.request_options import takes_requests
from orrery.terminal.signals import kept
from orrery.terminal.views import print_pairs, print_rich, print_width

if TYPE_CHECKING:
    import pandas as pd


_SHOWN = 20
"""Rows printed where no limit is given."""


def orrery_sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Sweep file, YAML.")],
    *,
    store: Annotated[Path, typer.Option(metavar="STORE", help="Store of results, SQLite; made where there is none.")],
    processes: Annotated[
        int, typer.Option(min=0, metavar="N", help="Processes on this machine; 0 starts one for each core.")
    ] = 0,
    dask: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Compute on this Dask scheduler's workers, or local:N for N here.")
    ] = "",
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Compute again the points that failed before.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Compute all points, however many there are.")] = False,
    json: JsonOption = False,
) -> None:
    """Compute the points of a sweep that a store lacks; stopped at any time, it goes on where it was."""
    from studies.sweep.store import Store
    from studies.sweep.sweep_file import MOST_POINTS, read_sweep
    from studies.sweep.sweep_run import run_sweep

    points = read_sweep(file, most_points=None if yes else MOST_POINTS)
    with Store.writing(store) as results_store, progress_bar(points.name) as progress:
        done = kept(
            run_sweep,
            points,
            results_store,
            processes=processes,
            dask=dask,
            retry_failed=retry_failed,
            progress=progress,
        )
    values = {"sweep": points.name, **asdict(done), "store": str(store)}
    print_json(values) if json else print_pairs(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChosenRows:
    """Rows and columns of the results to show and export."""

    where: list[str] | None = option(
        None, metavar="COND", help="Condition on rows, such as \"devices <= 96 and strategy == 'data'\"."
    )
    sort: str = option("", metavar="COLUMN", help="Column to sort by; with - before it, the greatest first.")
    columns: str = option("", metavar="C,C,...", help="Columns to show and export, or all.")
    limit: int = option(_SHOWN, low=1, metavar="N", help="Rows to print.")


@takes_requests
def orrery_results(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Results of sweeps, SQLite.")],
    *,
    rows: _ChosenRows,
    price: PriceOption = None,
    out: Annotated[Out | None, out_option("index.html", also=(".csv", ".parquet"))] = None,
    copy: Annotated[
        Path | None,
        typer.Option(metavar="NEW", help="Copy all that can be read of a damaged store, or of another version."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Filter, sort and export the results of sweeps."""
    from studies.size.typed_values import read_prices
    from studies.sweep.store import Store
    from studies.sweep.stored_results import exported, priced, result_table

    if copy:
        return print_pairs({"copied": Store.copy(store, copy), "store": str(copy)})
    with Store.reading(store) as opened:
        frame = opened.to_frame()
    if price:
        frame = priced(frame, read_prices(price, [*frame["cluster"].unique()]))
    frame = result_table(frame, where=rows.where or (), sort=rows.sort, columns=rows.columns)
    with out_files(out) as files:
        for file in files:
            if file.suffix in (".csv", ".parquet"):
                exported(frame, file)
            else:
                from reports.pages.sweep_page import sweep_html

                file.write_text(sweep_html(frame, name=store.name), encoding="utf-8")
    if json:
        return print_json({"rows": frame.to_dict(orient="records")})
    _show(frame, rows.limit, chosen=bool(rows.columns))


def _show(frame: "pd.DataFrame", limit: int, *, chosen: bool) -> None:
    """Print the first rows, with as many columns as fit where none were chosen, and what is not shown."""
    from reports.tables.sweep_columns import fitting_columns, reason_lines, sweep_table

    rows = frame.head(limit)
    names = list(rows.columns) if chosen else fitting_columns(rows, print_width())
    print_rich(sweep_table(rows[names]))
    shown = f", the first {limit:,} shown" if len(frame) > limit else ""
    missing = [name for name in frame.columns if name not in names]
    print(f"{len(frame):,} points{shown}")
    for line in reason_lines(frame):
        print(line)
    if missing:
        print(f"{len(missing)} of {len(frame.columns)} columns left out, see --columns all: {', '.join(missing)}")
