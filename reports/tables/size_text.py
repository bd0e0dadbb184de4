"""Answers to questions of size in words: the headline, the reasons, and the table of the points around the boundary."""

import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from hwprofiles import GIB, GIGA, HOUR_S
from reports.style import three_digits, time_unit
from studies.size import CurvePoint, SizeAnswer, TrainingCost

__all__ = ["size_cells", "size_headers", "size_headline", "size_lines", "size_table"]


def _quantity(answer: SizeAnswer, value: float) -> str:
    """Return a value of the quantity that the rule is about, with its unit."""
    if not math.isfinite(value):
        return "–"
    if answer.measure == "time":
        shown = [answer.limit or math.inf, *(row.quantity for row in answer.curve)]
        factor, unit = _time_scale(min(shown))
        return f"{three_digits(value / factor)} {unit}"
    if answer.measure == "memory":
        return f"{value / GIB:,.2f} GiB"
    if answer.measure == "loss":
        return f"{100 * value:.1f} %"
    return f"{three_digits(value)}{' device hours' if answer.measure == 'device hours' else ''}"


def _name(answer: SizeAnswer, row: CurvePoint) -> str:
    """Return what a point is of, in the words of the question's axis."""
    if answer.axis == "bytes/s":
        return f"{row.x / GIGA:.3g} GB/s ({8 * row.x / GIGA:.3g} Gbit/s)"
    if answer.axis == "samples a device":
        return f"{row.x:,.0f} a device"
    if answer.axis == "offer":
        return row.point.cluster
    devices, nodes = (f"{count:,} {what}{'s' * (count != 1)}" for count, what in
                      ((row.point.devices, "device"), (row.point.nodes, "node")))  # fmt: skip
    return f"{devices} of {row.point.sized.base} ({nodes})"


def size_headline(answer: SizeAnswer) -> str:
    """Return the answer in one sentence: the point, its quantity with the interval, and the point that is sure."""
    if answer.best is None:
        return f"No: {answer.question}: none of {len(answer.curve)} points that were tried holds."
    best = answer.best
    text = f"{_name(answer, best)} {_verb(answer)} {_with_interval(answer, best)}"
    if answer.limit is not None and answer.measure != "memory":
        text += f" of {_quantity(answer, answer.limit)}"
    if best.cost is not None and answer.measure != "time":
        text += f", in {_hours(best.cost.total_s)}"
    if answer.measure == "memory" or (answer.limit is None and len(answer.curve) == 1):
        return f"{text}."
    if answer.sure is None:
        return f"{text}; at the far end of the intervals it is not sure."
    if answer.sure is best:
        return f"{text}; holds at the far end of the interval too."
    return f"{text}; with the far end of the interval {_name(answer, answer.sure)}."


def _verb(answer: SizeAnswer) -> str:
    """Return what the answer does with its quantity: devices take time, a batch needs memory, a network costs speed."""
    verb = {"time": "take", "device hours": "take", "memory": "need"}.get(answer.measure, "cost")
    return (
        verb if answer.best is not None and answer.axis == "devices" and answer.best.point.devices > 1 else f"{verb}s"
    )


def size_lines(answer: SizeAnswer) -> list[str]:
    """Return the question, the reasons, the neighbours that fail, and the notes, one a line."""
    lines = [f"question: {answer.question}"]
    if answer.pace is not None:
        lines += [f"why: {answer.pace.sentence}", f"time left: {answer.pace.left}", f"change: {answer.pace.remedy}"]
    word = "next offer" if answer.axis == "offer" and answer.best else "fails"
    for row in answer.failing:
        reason = row.point.refusal or _with_interval(answer, row)
        if row.cost is not None and answer.limit is not None and answer.measure != "time" and not row.point.refusal:
            reason += f", in {_hours(row.cost.total_s)}"
        lines.append(f"{word}: {_name(answer, row)}: {reason}")
    if answer.failing_pace is not None:
        lines.append(f"why there: {answer.failing_pace.sentence}")
    cost = answer.best.cost if answer.best else None
    if cost is not None and cost.checkpoint_every_s:
        every, lost = (time_unit([value]) for value in (cost.checkpoint_every_s, cost.lost_s))
        lines.append(
            f"failures: a checkpoint every {every.full(cost.checkpoint_every_s)} loses least, "
            f"{lost.full(cost.lost_s)} of {_hours(cost.total_s)} in all"
        )
    return [*lines, *answer.notes]


def size_headers(answer: SizeAnswer) -> list[str]:
    """Return the headings of the curve's table."""
    first = {"bytes/s": "bandwidth", "samples a device": "batch", "offer": "offer"}.get(answer.axis, "size")
    heads = [first, answer.measure, "80 % interval", "holds", "batch", "strategy"]
    heads += ["expected", "simulated", "samples/s"]
    costs = _costs(answer.curve)
    if costs:
        heads += ["device hours"] * (answer.measure != "device hours")
        heads += ["money"] * (answer.measure != "money" and any(row.money is not None for row in costs))
        heads += ["money per M samples"] * any(row.money is not None for row in costs)
        heads += ["energy [kWh]"] * any(row.energy_kwh is not None for row in costs)
        heads += ["lost to failures"] * any(row.checkpoint_every_s for row in costs)
    return heads


def size_cells(answer: SizeAnswer) -> list[list[str]]:
    """Return the rows of the curve's table as text, in the order of ``size_headers``."""
    heads = size_headers(answer)
    unit = time_unit([row.point.expected_s for row in answer.curve])
    rows = []
    for row in answer.curve:
        holds = ("yes" if row.surely else "undecided") if row.holds else "no"
        cells = [_name(answer, row), _quantity(answer, row.quantity), _interval(answer, row.likely), holds]
        cells += [f"{row.point.batch:,}", row.point.strategy or "–"]
        cells += [unit.full(seconds) for seconds in (row.point.expected_s, row.point.iteration_s)]
        cells.append(three_digits(row.point.samples_per_s) if not row.point.refusal else "–")
        cost = row.cost
        if cost is not None:
            known = {
                "device hours": cost.device_hours, "money": cost.money,
                "money per M samples": cost.money_per_million_samples, "energy [kWh]": cost.energy_kwh,
                "lost to failures": cost.lost_s / 60 if cost.checkpoint_every_s else None,
            }  # fmt: skip
            ends = {"lost to failures": " min"}
            for head in heads[9:]:
                value = known[head]
                is_known = value is not None and math.isfinite(value)
                cells.append(f"{three_digits(value)}{ends.get(head, '')}" if is_known and value is not None else "–")
        rows.append(cells)
    return rows


def size_table(answer: SizeAnswer) -> Table:
    """Return the curve as a table for the terminal; the answer's row is marked."""
    table = Table(title=answer.question)
    for i, head in enumerate(size_headers(answer)):
        table.add_column(Text(head), justify="left" if i in (0, 5) else "right")
    for row, cells in zip(answer.curve, size_cells(answer), strict=True):
        marked = [f"→ {cells[0]}", *cells[1:]] if row is answer.best else cells
        table.add_row(*map(Text, marked))
    return table


def _costs(curve: Sequence[CurvePoint]) -> list[TrainingCost]:
    """Return the costs of the points that have some."""
    return [row.cost for row in curve if row.cost is not None]


def _with_interval(answer: SizeAnswer, row: CurvePoint) -> str:
    """Return a point's quantity with its interval."""
    interval = _interval(answer, row.likely)
    return _quantity(answer, row.quantity) + (f" (80 % interval {interval})" if interval != "–" else "")


def _interval(answer: SizeAnswer, likely: tuple[float, float] | None) -> str:
    """Return an interval as text."""
    if likely is None or not math.isfinite(likely[1]):
        return "–"
    return f"{_quantity(answer, likely[0])} to {_quantity(answer, likely[1])}"


def _time_scale(least_s: float) -> tuple[float, str]:
    """Return the unit for times of at least so many seconds."""
    return (HOUR_S, "h") if least_s >= 0.1 * HOUR_S else (60.0, "min") if least_s >= 6 else (1.0, "s")


def _hours(seconds: float) -> str:
    """Return a time in hours, or in a smaller unit."""
    factor, unit = _time_scale(seconds)
    return f"{three_digits(seconds / factor)} {unit}"
