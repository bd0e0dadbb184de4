"""Page of the oracle: iterations, epochs, memory, limits and winners."""

from typing import Any

from groundwork.units import HOUR_S
from reports.figures.oracle import epoch_figure, iteration_figure, oracle_memory_figure
from reports.pages.page_template import plain_figure, rendered
from reports.style.units import Tile, memory_unit, three_digits, tile, time_unit
from reports.tables.oracle_tables import booking_line, oracle_columns, oracle_headline, refused_lines, rows_in_order
from studies.oracle.oracle_table import OracleRow, OracleTable


def oracle_html(table: OracleTable) -> str:
    """Return the page as HTML."""
    rows = rows_in_order(table)
    drawn = {"iterations": iteration_figure, "epochs": epoch_figure, "memory": oracle_memory_figure}
    return rendered(
        "oracle.html",
        table=table,
        headline=oracle_headline(table),
        booking=booking_line(table),
        refused=refused_lines(table),
        tiles=_tiles(table),
        rows=rows,
        columns=oracle_columns(rows),
        winners=_winners(table),
        parameters=_parameters(table),
        data={name: plain_figure(draw(table)) for name, draw in drawn.items()},
    )


def _tiles(table: OracleTable) -> list[Tile]:
    """Return key numbers of the row to book."""
    row = table.affordable or table.fastest
    if row is None:
        return []
    known = row.simulated or row
    hours = row.devices * known.epoch_s * table.epochs / HOUR_S
    return [
        ("strategy", row.strategy, row.degrees),
        ("devices", f"{row.devices:,}", ""),
        tile("iteration", known.iteration_s, time_unit),
        tile("epoch", known.epoch_s, time_unit),
        ("communication by the closed form", f"{100 * row.communication_s / row.iteration_s:.1f}", "%"),
        (f"device hours, {table.epochs:,} epoch{'s' * (table.epochs > 1)}", three_digits(hours), ""),
        tile("memory", known.memory_bytes, memory_unit),
    ]


def _winners(table: OracleTable) -> list[dict[str, Any]]:
    """Return for every number of devices the winner, its lead over the second, and its largest part."""
    rows: list[dict[str, Any]] = []
    for p in table.counts:
        fitting = sorted((row for row in table.rows if row.devices == p and row.fits), key=lambda row: row.epoch_s)
        if not fitting:
            rows.append({"devices": p, "row": None, "next": "", "bound": "no strategy fits in memory", "epoch": "–"})
            continue
        best = next(row for row in fitting if row.strategy == table.winners[p])
        other = next((row for row in fitting if row is not best), None)
        rows.append(
            {
                "devices": p,
                "row": best,
                "epoch": time_unit([best.epoch_s]).full(best.epoch_s),
                "next": f"{other.epoch_s / best.epoch_s:.2f}× as fast as {other.strategy}" if other else "no other",
                "bound": _bound(best),
            }
        )
    return rows


def _bound(row: OracleRow) -> str:
    """Return the largest part of an iteration, with its share."""
    words = {
        "forward_backward_s": "computation",
        "update_s": "updates",
        "gradient_sync_s": "gradient synchronisation",
        "activations_s": "activations between layers",
        "halo_s": "halos",
        "pipeline_s": "transfers between stages",
    }
    largest = max(words, key=lambda name: float(getattr(row, name)))
    return f"{words[largest]}, {100 * getattr(row, largest) / row.iteration_s:.0f}\u00a0%"


def _parameters(table: OracleTable) -> list[tuple[str, str, str]]:
    """Return symbol, value and meaning of every parameter."""
    rows = [
        ("γ", f"{table.gamma:.3g}", "memory reuse: share of 2 Σ (|x| + |y|) that is allocated at once"),
        ("δ", f"{table.delta_bytes} B", "size of an element"),
    ]
    for wire in table.wires:
        alpha = time_unit([wire.alpha_s]).full(wire.alpha_s)
        rate = 1e-9 / wire.beta_s_per_byte
        rows.append(
            (f"α, β {wire.level}", f"{alpha}, 1 / {rate:.3g} GB/s", "a round of a ring, busiest link; message of 1 MiB")
        )
    return rows
