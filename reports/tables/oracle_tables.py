"""Headline, sentences and table of the oracle, printed alike by the terminal and the page."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from groundwork.units import HOUR_S
from reports.style.units import Unit, UnitChoice, memory_unit, plain_unit, three_digits, time_unit
from reports.tables.comparison_summary import Column
from reports.tables.text_table import text_table
from studies.oracle.oracle_table import OracleRow, OracleTable, Simulated


def oracle_headline(table: OracleTable) -> str:
    """Return the finding in one or two sentences: the fastest strategy, and the fastest within the budget.

    Times and what fits are simulated where rows are simulated, as those of the booking are.
    """
    counts = (
        f"{min(table.counts):,} to {max(table.counts):,} devices" if len(table.counts) > 1 else "one number of devices"
    )
    task = f"{table.model} on {table.cluster}, {table.samples:,} samples per epoch"
    best = table.fastest
    if best is None:
        return f"No strategy fits in memory: {task}, {counts}."
    finding = f"{_spoken(best)} is predicted fastest for {task}: {_epoch(best)}"
    if table.budget_gpu_hours is None:
        return f"{finding}."
    affordable, booking = table.affordable, table.booking
    words = f"within {table.budget_gpu_hours:,g} device hours for {table.epochs:,} epoch{'s' * (table.epochs > 1)}"
    if affordable is None or booking is None:
        return f"{finding}; no row is {words}."
    if affordable is best:
        return f"{finding}, {words} ({three_digits(booking.gpu_hours)})."
    return f"{finding}; {words} it is {_spoken(affordable)}: {_epoch(affordable)}."


def _spoken(row: OracleRow) -> str:
    return f"{row.strategy} on {row.devices:,} device{'s' * (row.devices > 1)}"


def _epoch(row: OracleRow) -> str:
    return (
        f"{_time(row.simulated.epoch_s)} per epoch, simulated" if row.simulated else f"{_time(row.epoch_s)} per epoch"
    )


def _time(seconds: float) -> str:
    return f"{three_digits(seconds / HOUR_S)} h" if seconds >= HOUR_S else time_unit([seconds]).full(seconds)


def booking_line(table: OracleTable) -> str:
    """Return what to book: strategy, devices and time for all epochs."""
    booking, epochs = table.booking, f"{table.epochs:,} epoch{'s' * (table.epochs > 1)}"
    if booking is None:
        budget = "" if table.budget_gpu_hours is None else f" and in {table.budget_gpu_hours:,g} device hours"
        return f"To book for {epochs}: nothing fits in memory{budget}."
    source = "by simulation" if booking.simulated else "by the closed forms"
    devices = f"{booking.devices:,} device{'s' * (booking.devices > 1)}"
    return (
        f"To book for {epochs}, {source}: {devices} for {_time(booking.time_s)} under {booking.strategy}, "
        f"{three_digits(booking.gpu_hours)} device hours."
    )


def refused_lines(table: OracleTable) -> list[str]:
    """Return the rows that have no plan, with each reason once."""
    rows: dict[str, list[str]] = {}
    for row in table.rows:
        if row.simulated and row.simulated.refused:
            rows.setdefault(row.simulated.refused, []).append(f"{row.strategy} on {row.devices:,}")
    return [f"not simulated: {', '.join(names)}: {reason}" for reason, names in rows.items()]


def limit_lines(table: OracleTable) -> list[str]:
    """Return the largest number of devices of each strategy, and the reason."""
    return [f"{limit.strategy}: at most {limit.devices:,}, {limit.reason}" for limit in table.limits]


def rows_in_order(table: OracleTable) -> list[OracleRow]:
    """Return the rows by number of devices, then by time of an epoch."""
    return sorted(table.rows, key=lambda row: (row.devices, row.epoch_s))


def oracle_columns(rows: Sequence[OracleRow]) -> tuple[Column, ...]:
    """Return the columns of numbers, each in one unit."""
    times = time_unit([row.iteration_s for row in rows])
    described: list[tuple[str, str, Unit | UnitChoice, str]] = [
        ("compute", "forward, backward and update of one device", times, "compute_s"),
        ("gradients", "gradient synchronisation", times, "gradient_sync_s"),
        ("activations", "gathered and summed between layers", times, "activations_s"),
        ("halo", "borders of the neighbours' parts", times, "halo_s"),
        ("stages", "transfers between the stages of a pipeline", times, "pipeline_s"),
        ("iteration", "sum of all parts: nothing overlaps", times, "iteration_s"),
        ("epoch", "all samples once", time_unit, "epoch_s"),
        ("device h", "devices x time of all epochs", plain_unit, "gpu_hours"),
        ("memory", "of the fullest device", memory_unit, "memory_bytes"),
    ]
    simulated: list[tuple[str, str, Unit | UnitChoice, str]] = [
        ("sim. compute", "simulated: computation of the busiest device", times, "compute_s"),
        ("sim. waits", "simulated: time that this computation does not cover", times, "waits_s"),
        ("sim. iteration", "the same strategy as a plan, with overlap and contention", times, "iteration_s"),
        ("sim. memory", "peak of the fullest device in the simulation", memory_unit, "memory_bytes"),
    ]
    known = [row.simulated for row in rows]
    if not any(known):
        simulated = []

    def values(of: Sequence[OracleRow | Simulated | None], name: str) -> Iterator[float]:
        return (float(getattr(each, name)) if each else 0.0 for each in of)  # 0 in rows without a plan

    columns = [(*each, rows) for each in described] + [(*each, known) for each in simulated]
    return tuple(Column.of(title, meaning, unit, values(of, name)) for title, meaning, unit, name, of in columns)


def oracle_table(table: OracleTable) -> Table:
    """Return the table with one row for each strategy and number of devices; the fastest of each number is marked."""
    rows = rows_in_order(table)
    columns = [column for column in oracle_columns(rows) if any(column.values)]  # a terminal is narrow
    if table.simulates:
        columns = [column for column in columns if column.title != "device h"]
    kind = "per device" if table.scaling == "weak" else "for all"
    cells, styles = list[list[str]](), dict[int, str]()
    for i, row in enumerate(rows):
        won = table.winners.get(row.devices) == row.strategy
        first = table.simulated_winners.get(row.devices) == row.strategy
        name = f"{'★' if won else ' '}{'☆' if first else ' '} {row.strategy}{'' if row.fits else ' (does not fit)'}"
        cells.append([f"{row.devices:,}", name, row.degrees, f"{row.batch:,}", *(each.texts[i] for each in columns)])
        styles[i] = "bold" if won else "" if row.fits else "dim"
    title = f"{table.model} on {table.cluster}, {table.dataset}, batch {table.batch:,} {kind}"
    headers = ["devices", "strategy", "degrees", "batch", *(column.header for column in columns)]
    ends = [i for i, row in enumerate(rows) if i + 1 == len(rows) or rows[i + 1].devices != row.devices]
    return text_table(title, headers, cells, words=(1, 2), styles=styles, ends=ends, no_wrap=True)
