"""Table of a comparison for the terminal."""

from rich.table import Table
from rich.text import Text

from planner.plan.comparison import Comparison
from reports.style.plan_names import broken_name
from reports.tables.comparison_summary import comparison_columns
from reports.tables.likely_text import undecided_line, winner_of


def comparison_table(comparison: Comparison) -> Table:
    """Return the table with one row for each strategy, the fastest marked, and units in the headers."""
    columns, winner = comparison_columns(comparison), winner_of(comparison)
    title = f"{comparison.model} on {comparison.cluster}, batch {comparison.batch:,}"
    table = Table(title=title, caption=undecided_line(comparison) or None, caption_justify="left")
    table.add_column("strategy", no_wrap=True)
    for column in columns:
        table.add_column(Text(column.header), justify="right")
    for i, strategy in enumerate(comparison.strategies):
        won = strategy is winner
        cells = [Text(column.texts[i]) for column in columns]
        name = broken_name(strategy.name, "\n  ")
        table.add_row(Text(f"★ {name}" if won else f"  {name}"), *cells, style="bold" if won else "")
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
