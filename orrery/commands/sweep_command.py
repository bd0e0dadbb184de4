"""``orrery sweep`` and ``orrery results``: many what-if points, and what became of them."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orrery.terminal import Json, print_json, print_pairs, print_rich, print_width, progress_bar, whole_file

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["results", "sweep"]

_SHOWN = 20


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Sweep file, YAML.")],
    *,
    store: Annotated[Path, typer.Option(metavar="STORE", help="Results, SQLite; made where there is none.")],
    processes: Annotated[int, typer.Option(min=0, metavar="N", help="Processes here; 0: one a core.")] = 0,
    dask: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Compute on this Dask scheduler's workers, or local:N for N here.")
    ] = "",
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Compute again what broke off before.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Compute however many points there are.")] = False,
    json: Json = False,
) -> None:
    """Compute what a store lacks of a sweep's points; stop it whenever, it goes on where it was."""
    from dataclasses import asdict

    from studies.sweep import MOST_POINTS, Store, read_sweep, run_sweep

    points = read_sweep(file, most_points=None if yes else MOST_POINTS)
    with Store.writing(store) as results_store, progress_bar(points.name) as progress:
        done = run_sweep(
            points, results_store, processes=processes, dask=dask, retry_failed=retry_failed, progress=progress
        )
    values = {"sweep": points.name, **asdict(done), "store": str(store)}
    print_json(values) if json else print_pairs(values)


def results(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Results of sweeps, SQLite.")],
    *,
    where: Annotated[
        list[str] | None, typer.Option(metavar="COND", help="Rows such as \"devices <= 96 and strategy == 'data'\".")
    ] = None,
    sort: Annotated[str, typer.Option(metavar="COLUMN", help="Sort by it; with - before it, greatest first.")] = "",
    columns: Annotated[str, typer.Option(metavar="C,C,...", help="Columns to show and export; or all.")] = "",
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Rows to print.")] = _SHOWN,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="CSV to write, all rows that are left.")] = None,
    parquet: Annotated[Path | None, typer.Option(metavar="FILE", help="Parquet to write, likewise.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="PAGE", help="Page to write: pictures and a table.")] = None,
    copy: Annotated[
        Path | None, typer.Option(metavar="NEW", help="Copy what can be read of a damaged or other store.")
    ] = None,
    json: Json = False,
) -> None:
    """Filter, sort and export what sweeps have stored."""
    from studies.sweep import Store, check_suffix, exported, result_table

    if copy:
        return print_pairs({"copied": Store.copy(store, copy), "store": str(copy)})
    with Store.reading(store) as opened:
        frame = result_table(opened.to_frame(), where=where or (), sort=sort, columns=columns)
    for path, suffix in ((csv, ".csv"), (parquet, ".parquet")):
        if path:
            check_suffix(path, suffix)
    with ExitStack() as stack:  # all of them or none
        csv_file, parquet_file, page = (
            path and stack.enter_context(whole_file(path, store)) for path in (csv, parquet, html)
        )
        for file in filter(None, (csv_file, parquet_file)):
            exported(frame, file)
        if page:
            from reports.pages import write_sweep_page

            write_sweep_page(frame, page, name=store.name)
    if json:
        return print_json({"rows": frame.to_dict(orient="records")})
    _show(frame, limit, chosen=bool(columns))


def _show(frame: "pd.DataFrame", limit: int, *, chosen: bool) -> None:
    """Print the first rows, with as many columns as fit where none were chosen, and what is not shown."""
    from reports.tables import fitting_columns, reason_lines, sweep_table

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
