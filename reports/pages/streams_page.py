"""Page and table of a comparison of stream schedules."""

from rich.table import Table

from reports.figures.streams import ladder_of_streams, occupancy_figure, timelines_figure
from reports.pages.page_template import plain_figure, rendered
from reports.style.units import Tile, memory_unit, three_digits, tile, time_unit
from reports.tables.text_table import text_table
from studies.streams.schedule_comparison import StreamComparison


def streams_headline(comparison: StreamComparison) -> str:
    """Return the finding in one sentence: the fastest schedule and its gain."""
    best = min(comparison.results, key=lambda row: row.iteration_s)
    unit = time_unit([best.iteration_s])
    plain = comparison.results[0]
    where = f"{comparison.model} on {comparison.device}, batch {comparison.batch:,}"
    time = f"{unit.full(best.iteration_s)} per iteration"
    if three_digits(comparison.gain(best)) == three_digits(1.0):
        return f"No schedule is faster than {plain.name} for {where}: {unit.full(plain.iteration_s)} per iteration."
    gain = f"{three_digits(comparison.gain(best))} times as fast as {plain.name}"
    return f"{best.name} is {gain} for {where}: {time}, on {best.streams} streams."


def stream_rows(comparison: StreamComparison) -> tuple[list[str], list[list[str]]]:
    """Return titles and cells of the table, with one row for each schedule."""
    time = time_unit([row.iteration_s for row in comparison.results])
    memory = memory_unit([row.held_bytes for row in comparison.results])
    titles = [
        "schedule",
        "priorities by",
        f"iteration [{time.name}]",
        "gain",
        "step",
        "streams",
        "occupancy",
        f"critical [{time.name}]",
        f"held [{memory.name}]",
        f"bound [{time.name}]",
    ]
    rows, before = [], comparison.results[0]
    for row in comparison.results:
        rows.append(
            [
                row.name,
                row.method or "–",
                time.text(row.iteration_s),
                f"{three_digits(comparison.gain(row))}×",
                f"{before.iteration_s / row.iteration_s - 1:+z.1%}" if row is not comparison.results[0] else "",
                str(row.streams),
                f"{row.occupancy:.0%}",
                time.text(row.gradient_end_s),
                memory.text(row.held_bytes),
                time.text(row.bound_s),
            ]
        )
        before = row
    return titles, rows


def streams_table(comparison: StreamComparison) -> Table:
    """Return the table for the terminal, with one row for each schedule and the fastest marked."""
    titles, rows = stream_rows(comparison)
    best = min(range(len(rows)), key=lambda i: comparison.results[i].iteration_s)
    task = f"{comparison.model} on {comparison.device}, batch {comparison.batch:,}"
    marked = [[f"{'★' if i == best else ' '} {name}", *cells] for i, (name, *cells) in enumerate(rows)]
    title = f"{task}, occupancy by {comparison.occupancy_model}"
    return text_table(title, titles, marked, words=(0, 1), styles={best: "bold"})


def streams_html(comparison: StreamComparison) -> str:
    """Return the page as HTML."""
    drawn = {"ladder": ladder_of_streams, "timelines": timelines_figure, "occupancy": occupancy_figure}
    titles, rows = stream_rows(comparison)
    best = min(comparison.results, key=lambda row: row.iteration_s)
    return rendered(
        "streams.html",
        comparison=comparison,
        headline=streams_headline(comparison),
        tiles=_tiles(comparison),
        titles=titles,
        rows=rows,
        best=best.name,
        data={name: plain_figure(draw(comparison)) for name, draw in drawn.items()},
    )


def _tiles(comparison: StreamComparison) -> list[Tile]:
    """Return key numbers of the fastest schedule."""
    best = min(comparison.results, key=lambda row: row.iteration_s)
    return [
        tile("iteration", best.iteration_s, time_unit),
        (f"gain over {comparison.results[0].name}", three_digits(comparison.gain(best)), "×"),
        ("layer paths", str(comparison.layer_paths), f"in {comparison.blocks} block{'s' * (comparison.blocks > 1)}"),
        ("streams", str(best.streams), ""),
        ("occupancy", f"{100 * best.occupancy:.0f}", "%"),
        tile("held by weight gradients", best.held_bytes, memory_unit),
    ]
