"""Table of a comparison for the terminal."""

from rich.table import Table
from rich.text import Text

from planner.plan import Comparison
from reports.tables.comparison_summary import comparison_columns, winner_of

__all__ = ["comparison_table"]


def comparison_table(comparison: Comparison) -> Table:
    """Return the table with one row for each strategy, the fastest marked, and units in the headers."""
    columns, winner = comparison_columns(comparison), winner_of(comparison)
    table = Table(title=f"{comparison.model} on {comparison.cluster}, batch {comparison.batch:,}")
    table.add_column("strategy", no_wrap=True)
    for column in columns:
        table.add_column(Text(column.header), justify="right")
    for i, strategy in enumerate(comparison.strategies):
        won = strategy is winner
        cells = [Text(column.texts[i]) for column in columns]
        table.add_row(Text(f"★ {strategy.name}" if won else f"  {strategy.name}"), *cells, style="bold" if won else "")
    return table
