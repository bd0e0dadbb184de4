"""Headline and columns of a comparison, printed alike by the terminal and the page, and the terminal's table."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rich.table import Table

from planner.plan.comparison import Comparison, StrategyResult
from reports.style.plan_names import broken_name
from reports.style.units import Unit, UnitChoice, byte_unit, memory_unit, plain_unit, three_digits, time_unit
from reports.tables.likely_text import expected_time, likely_ends, undecided_line, winner_of
from reports.tables.text_table import text_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Column of a table: one value for each row, all in one unit."""

    title: str
    meaning: str
    unit: Unit
    values: tuple[float, ...]
    intervals: tuple[tuple[float, float] | None, ...] = ()
    """Intervals in SI units, which stand in place of the values."""

    @classmethod
    def of(cls, title: str, meaning: str, unit: Unit | UnitChoice, values: Iterable[float]) -> "Column":
        """Return a column in a unit, or in the one that is chosen for its values."""
        listed = tuple(values)
        return cls(title=title, meaning=meaning, unit=unit if isinstance(unit, Unit) else unit(listed), values=listed)

    @property
    def header(self) -> str:
        """Title of the column with its unit."""
        return f"{self.title} [{self.unit.name}]" if self.unit.name else self.title

    @property
    def texts(self) -> tuple[str, ...]:
        """Values or intervals as text, without the unit."""
        if self.intervals:
            return tuple(likely_ends(interval, self.unit) for interval in self.intervals)
        return tuple(self.unit.text(value) for value in self.values)


def comparison_headline(comparison: Comparison) -> str:
    """Return the finding in one sentence: the fastest strategy, its time, and how much faster it is."""
    task = f"{comparison.model} on {comparison.cluster} ({len(comparison.devices)} devices), batch {comparison.batch:,}"
    winner = winner_of(comparison)
    if winner is None:
        return f"No strategy can run {task}."
    time = expected_time(winner.expected_s, winner.likely_s, winner.simulated_s)
    rate = f"{three_digits(winner.samples_per_s)} {comparison.samples_are}/s"
    rate += f", {three_digits(winner.rates.tokens_per_s)} tokens/s" if winner.rates.tokens_per_s else ""
    equal = [s.name for s in comparison.strategies if s.expected_s == winner.expected_s and s is not winner]
    best = [winner.name, *equal]  # the optimum of a search may be a named strategy
    what = f"{_listed(best)} are the fastest ways" if len(best) > 1 else f"{winner.name} is the fastest way"
    finding = f"{what} to train {task}: {time}, {rate}"
    others = [(s.expected_s / winner.expected_s, s.name) for s in comparison.strategies if s.name not in best]
    parts = [f"{three_digits(ratio)}× {'' if i else 'as fast as '}{name}" for i, (ratio, name) in enumerate(others)]
    return f"{finding} – {_listed(parts)}." if others else f"{finding}."


def fullest_device(strategy: StrategyResult, capacity_bytes: tuple[float, ...]) -> int:
    """Return the index of the device whose memory is used to the largest share."""
    shares = [peak / size for peak, size in zip(strategy.peak_memory_bytes, capacity_bytes, strict=True)]
    return shares.index(max(shares))


_MEANINGS = {
    "speedup": "expected time of the whole batch on one device, even if it would not fit there, over that of the "
    "strategy",
    "rate": "batch size over expected time",
    "tokens/s": "tokens of a batch over expected time",
    "MFU": "model FLOP (3 x forward) over expected time and the sum of peaks (PaLM, appendix B)",
    "money": "price of the device hours that they take",
    "expected": "median of the times that measurements suggest",
    "likely": "80 % interval of the times that measurements suggest",
    "simulated": "steady iteration on the machine as described, with overlap and contention",
    "additive": "sum of all phases and transfers, one after the other (Eq. 1 of the layer-wise paper)",
    "moved": "bytes that devices send in an iteration",
    "exposed comm.": "time in which the busiest device waits for communication",
    "peak memory": "of the fullest device",
    "lower bound": "no schedule of the same tasks is shorter",
}
"""Meanings of the columns of a comparison."""


def comparison_columns(comparison: Comparison) -> tuple[Column, ...]:
    """Return the columns of the comparison table, in order."""
    strategies, samples = comparison.strategies, comparison.samples_are
    times, rates = time_unit([s.expected_s for s in strategies]), [s.rates for s in strategies]
    tokens_per_s = [each.tokens_per_s for each in rates if each.tokens_per_s]
    money = [each.money_per_million_samples for each in rates if each.money_per_million_samples is not None]
    peaks = [s.peak_memory_bytes[fullest_device(s, comparison.device_memory_bytes)] for s in strategies]

    def column(title: str, unit: Unit | UnitChoice, values: Iterable[float], meaning: str = "") -> Column:
        return Column.of(title, _MEANINGS[meaning or title], unit, values)

    likely = column("likely", times, (s.likely_s[0] if s.likely_s else math.nan for s in strategies))
    return (
        column("speedup", plain_unit, (s.speedup for s in strategies)),
        column(f"{samples}/s", plain_unit, (s.samples_per_s for s in strategies), "rate"),
        *([column("tokens/s", plain_unit, tokens_per_s)] if tokens_per_s else []),
        column("MFU", Unit("%", 0.01), (each.mfu for each in rates)),
        *([column(f"money per million {samples}", plain_unit, money, "money")] if money else []),
        column("expected", times, (s.expected_s for s in strategies)),
        replace(likely, intervals=tuple(s.likely_s for s in strategies)),
        column("simulated", times, (s.simulated_s for s in strategies)),
        column("additive", times, (s.additive_s for s in strategies)),
        column("moved", byte_unit, (s.moved_bytes for s in strategies)),
        column("exposed comm.", times, (s.exposed_communication_s for s in strategies)),
        column("peak memory", memory_unit, peaks),
        column("lower bound", times, (s.lower_bound_s for s in strategies)),
    )


def _listed(parts: list[str]) -> str:
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def comparison_table(comparison: Comparison) -> Table:
    """Return the table with one row for each strategy, the fastest marked, and units in the headers."""
    columns, winner = comparison_columns(comparison), winner_of(comparison)
    title = f"{comparison.model} on {comparison.cluster}, batch {comparison.batch:,}"
    names = [broken_name(each.name, "\n  ") for each in comparison.strategies]
    marks = ["★" if each is winner else " " for each in comparison.strategies]
    rows = [[f"{marks[i]} {name}", *(column.texts[i] for column in columns)] for i, name in enumerate(names)]
    styles = {i: "bold" for i, mark in enumerate(marks) if mark == "★"}
    headers = ["strategy", *(column.header for column in columns)]
    table = text_table(title, headers, rows, styles=styles, no_wrap=True)
    table.caption, table.caption_justify = undecided_line(comparison) or None, "left"
    return table


def pace_lines(comparison: Comparison) -> list[str]:
    """Return what sets the pace of each strategy, how much of each resource's time is left, and what would help."""
    winner, names = winner_of(comparison), dict[str, list[str]]()
    for strategy in comparison.strategies:
        if strategy.pace is not None:
            said = f"{strategy.pace.sentence}; time left: {strategy.pace.left}"
            names.setdefault(said, []).append(strategy.name)
    lines = [f"{' and '.join(who)}: {said}." for said, who in names.items()]  # what holds for several is said once
    if winner is not None and winner.pace is not None:
        lines.append(f"To be faster than {winner.name}: {winner.pace.remedy}.")
    return lines
