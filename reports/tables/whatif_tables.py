"""Tables of what-if results for the terminal: scenarios, and the effect of faster hardware."""

import math

from rich.table import Table
from rich.text import Text

from reports.style import plain_unit, time_unit
from studies.whatif import WhatIf

__all__ = ["sensitivity_table", "whatif_reason_lines", "whatif_table"]


def whatif_table(result: WhatIf) -> Table:
    """Return the table with one row for each scenario and strategy, with the change from the same strategy today."""
    table = Table(title=f"{result.model} on {result.cluster}")
    times = time_unit([row.iteration_s for row in result.rows])
    rates = plain_unit([row.images_per_s for row in result.rows])
    for name in ("scenario", "strategy"):
        table.add_column(name)
    for name in ("devices", "batch", f"iteration [{times.name}]", "images/s", "against today"):
        table.add_column(Text(name), justify="right")
    for i, row in enumerate(result.rows):
        last = i + 1 == len(result.rows) or result.rows[i + 1].scenario != row.scenario
        first = i == 0 or result.rows[i - 1].scenario != row.scenario
        change = "–" if math.isnan(row.against_today) else f"{row.against_today - 1:+.1%}"
        cells = [row.scenario if first else "", row.strategy, f"{row.devices:,}", f"{row.batch:,}"]
        cells += [times.text(row.iteration_s), rates.text(row.images_per_s), change]
        table.add_row(*(Text(cell) for cell in cells), end_section=last)
    return table


def whatif_reason_lines(result: WhatIf) -> list[str]:
    """Return the reasons why rows have no result, each reason of a scenario once."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in result.rows:
        if row.reason:
            reasons.setdefault((row.scenario, row.reason), []).append(row.strategy)
    return [f"{scenario}: {', '.join(names)}: {reason}" for (scenario, reason), names in reasons.items()]


def sensitivity_table(result: WhatIf, top: int) -> Table:
    """Return the table of what faster hardware would change today, the largest gains of each strategy first."""
    table = Table(title="today, with faster hardware")
    for name, justify in (("strategy", "left"), ("change", "left"), ("iteration", "right"), ("elasticity", "right")):
        table.add_column(name, justify="right" if justify == "right" else "left")
    for strategy, rows in result.sensitivities.items():
        for i, row in enumerate(rows[:top]):
            cells = (strategy if i == 0 else "", row.change, f"{row.effect:+.1%}", f"{row.elasticity:+.3f}")
            table.add_row(*map(Text, cells), end_section=i + 1 == min(top, len(rows)))
    return table
