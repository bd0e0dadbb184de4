"""Tables of what-if results for the terminal and the page: scenarios, reasons, and the effect of faster hardware."""

import math

from rich.table import Table

from planner.simulation.sensitivity import Sensitivity
from reports.style.units import three_digits, time_unit
from reports.tables.text_table import text_table
from studies.whatif.scenarios import WhatIf, WhatIfRow


def whatif_headline(result: WhatIf) -> str:
    """Return the finding in one sentence: the scenarios that bring most and cost most, and the reason."""
    best, worst = whatif_extremes(result)
    parts = []
    if best:
        parts.append(f"{best.scenario} brings most: {_change(best)} samples/s with {best.strategy}")
    if worst:
        parts.append(f"{worst.scenario} costs most: {_change(worst)} samples/s with {worst.strategy}")
    shown = worst or best
    return f"{'; '.join(parts)} ({shown.why})." if shown else _unchanged(result)


def whatif_finding(result: WhatIf) -> str:
    """Return the finding in few words, for a page that has intervals and reasons beside it."""
    best, worst = whatif_extremes(result)
    parts = [f"{best.scenario} brings most, {best.against_today - 1:+z.1%} samples/s"] if best else []
    parts += [f"{worst.scenario} costs most, {worst.against_today - 1:+z.1%}"] if worst else []
    return f"{'; '.join(parts)}." if parts else _unchanged(result)


def _unchanged(result: WhatIf) -> str:
    """Return the finding where no scenario brings or costs anything."""
    rows = [row for row in result.rows if row.scenario != "today" and not math.isnan(row.against_today)]
    if not rows and len(result.scenarios) == 1:
        return f"Only today of {result.model} on {result.cluster} is there to show."
    if not rows:
        return f"No scenario of {result.model} on {result.cluster} has a plan."
    return f"no scenario changes the samples/s of {result.model} on {result.cluster} ({rows[0].why})."


def whatif_extremes(result: WhatIf) -> tuple[WhatIfRow | None, WhatIfRow | None]:
    """Return the rows that bring most and cost most; None where no row brings or costs anything that is shown."""
    rows = [row for row in result.rows if row.scenario != "today" and not math.isnan(row.against_today)]
    best = max(rows, key=lambda row: row.against_today, default=None)
    worst = min(rows, key=lambda row: row.against_today, default=None)
    return best if best and _shown(best) > 0 else None, worst if worst and _shown(worst) < 0 else None


def _shown(row: WhatIfRow) -> float:
    """Return the change from today as it is shown, in tenths of a per cent."""
    return round(row.against_today - 1, 3)


def whatif_columns(result: WhatIf) -> list[tuple[str, list[str]]]:
    """Return the columns of the table: heading and texts."""
    rows, times = result.rows, time_unit([row.expected_s for row in result.rows])
    tokens = [three_digits(row.tokens_per_s or math.nan) for row in rows]
    return [
        ("scenario", [row.scenario for row in rows]),
        ("strategy", [row.strategy for row in rows]),
        ("against today", ["–" if math.isnan(row.against_today) else f"{row.against_today - 1:+z.1%}" for row in rows]),
        ("80 % interval", [_interval(row) for row in rows]),
        (f"expected [{times.name}]", [times.text(row.expected_s) for row in rows]),
        (f"simulated [{times.name}]", [times.text(row.iteration_s) for row in rows]),
        ("samples/s", [three_digits(row.samples_per_s) for row in rows]),
        *([("tokens/s", tokens)] if any(row.tokens_per_s for row in rows) else []),
        ("MFU [%]", [three_digits(100 * row.mfu) for row in rows]),
        ("devices", [f"{row.devices:,}" for row in rows]),
        ("batch", [f"{row.batch:,}" for row in rows]),
    ]


def whatif_table(result: WhatIf) -> Table:
    """Return the table with one row for each scenario and strategy, with the change from the same strategy today."""
    headers, columns = zip(*whatif_columns(result), strict=True)
    names = [row.scenario for row in result.rows]
    ends = [i for i, name in enumerate(names) if names[i + 1 : i + 2] != [name]]
    rows = [
        ["" if i and names[i - 1] == names[i] else first, *cells]
        for i, (first, *cells) in enumerate(zip(*columns, strict=True))
    ]
    title = f"{result.model} on {result.cluster}"
    return text_table(title, headers, rows, words=(0, 1), ends=ends)


def whatif_why_lines(result: WhatIf) -> list[str]:
    """Return for each row what sets the pace before and after, how transfers go round, and what would change it."""
    lines = []
    for row in result.rows:
        if row.pace is None:
            continue
        lines.append(f"{row.scenario}, {row.strategy}: {row.why}")
        if row.scenario == "today":
            lines += [f"  time left: {row.pace.left}", f"  change: {row.pace.remedy}"]
        if row.detour:
            lines.append(f"  {row.detour}: {_change(row)} samples/s")
    return lines


def whatif_reason_lines(result: WhatIf) -> list[str]:
    """Return the reasons why rows have no result, each reason of a scenario once."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in result.rows:
        if row.reason:
            reasons.setdefault((row.scenario, row.reason), []).append(row.strategy)
    return [f"{scenario}: {', '.join(names)}: {reason}" for (scenario, reason), names in reasons.items()]


def sensitivity_cells(row: Sensitivity) -> tuple[str, str, str]:
    """Return change, effect on the iteration, and elasticity with its spread; or that small changes say nothing.

    Where the slopes on both sides differ by more than their mean, transfers take turns in another order after a small
    change: the replay with the large change is what counts then.
    """
    expected = 1 if row.quantity == "latency" else -1  # more speed shortens the iteration, more latency lengthens it
    unclear = row.elasticity_spread > abs(row.elasticity) or row.elasticity * expected < 0
    slope = f"{row.elasticity:+z.3f} ± {row.elasticity_spread:.3f}"
    return row.change, f"{row.effect:+z.1%}", f"unclear ({slope})" if unclear and row.elasticity else slope


def sensitivity_table(result: WhatIf, top: int) -> Table:
    """Return the table of what faster hardware would change today, the largest gains of each strategy first."""
    shown, ends = list[tuple[str, ...]](), list[int]()
    for strategy, rows in result.sensitivities.items():
        shown += [("" if i else strategy, *sensitivity_cells(row)) for i, row in enumerate(rows[:top])]
        ends.append(len(shown) - 1)
    headers = ("strategy", "change", "simulated iteration", "elasticity")
    return text_table("today, with faster hardware and the same plan", headers, shown, words=(0, 1), ends=ends)


def _change(row: WhatIfRow) -> str:
    """Return the change from today with its interval."""
    interval = _interval(row)
    return f"{row.against_today - 1:+z.1%}" + (f" (80 % interval {interval})" if interval != "–" else "")


def _interval(row: WhatIfRow) -> str:
    """Return the interval of the change from today."""
    if row.likely_against_today is None:
        return "–"
    low, high = row.likely_against_today
    return f"{low - 1:+z.1%} to {high - 1:+z.1%}"
