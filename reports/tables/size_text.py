"""Answers to questions of size in words: the headline, the reasons, and the table of the points around the boundary."""

import math
from collections.abc import Callable
from dataclasses import replace

from rich.table import Table

from groundwork.units import GIB, GIGA, HOUR_S
from reports.style.units import three_digits, time_unit
from reports.tables.text_table import text_table
from studies.size.size_answer import CurvePoint, SizeAnswer


def _scale(answer: SizeAnswer) -> tuple[float, str]:
    """Return the unit of all values of the quantity that the rule is about: its size, and its name."""
    if answer.measure == "time":
        return training_unit(min([answer.limit or math.inf, *(row.quantity for row in answer.curve)]))
    return {"memory": (GIB, "GiB"), "loss": (0.01, "%"), "device hours": (1.0, "device hours")}.get(
        answer.measure, (1.0, "")
    )


def _amount(answer: SizeAnswer, value: float) -> str:
    """Return a value of that quantity, without its unit."""
    amount = value / _scale(answer)[0]
    if not math.isfinite(value):
        return "–"
    decimals = {"memory": 2, "loss": 1}.get(answer.measure)
    return three_digits(amount) if decimals is None else f"{amount:,.{decimals}f}"


def _quantity(answer: SizeAnswer, value: float) -> str:
    return f"{_amount(answer, value)} {_scale(answer)[1]}".strip() if math.isfinite(value) else "–"


def _name(answer: SizeAnswer, row: CurvePoint) -> str:
    """Return what a point is of, in the words of the question's axis."""
    if answer.axis == "bytes/s":
        return f"{row.x / GIGA:.3g} GB/s ({8 * row.x / GIGA:.3g} Gbit/s)"
    if answer.axis == "samples a device":
        return f"{row.x:,.0f} a device"
    if answer.axis == "offer":
        return row.point.cluster
    devices, nodes = (
        f"{count:,} {what}{'s' * (count != 1)}"
        for count, what in ((row.point.devices, "device"), (row.point.nodes, "node"))
    )
    return f"{devices} of {row.point.sized.base} ({nodes})"


def size_headline(answer: SizeAnswer) -> str:
    """Return the answer in one sentence: the point, its quantity with the interval, and the point that is sure.

    After an interrupt it is the best of the points that were tried, and the sentence says so.
    """
    if answer.interrupted:
        points = f"{len(answer.curve)} point{'s' * (len(answer.curve) != 1)}"
        rest = size_headline(replace(answer, interrupted=False)) if answer.best else "none holds."
        return f"Interrupted after {points}, of which {'the best is: ' * bool(answer.best)}{rest}"
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
        least = "no checkpoint at all"
        if math.isfinite(cost.checkpoint_every_s):
            least = f"a checkpoint every {time_unit([cost.checkpoint_every_s]).full(cost.checkpoint_every_s)}"
        lost = time_unit([cost.lost_s]).full(cost.lost_s)
        lines.append(f"failures: {least} loses least, {lost} of {_hours(cost.total_s)} in all")
    return [*lines, *answer.notes]


def size_columns(answer: SizeAnswer) -> list[tuple[str, bool, list[str]]]:
    """Return the columns of the curve's table: the heading with the unit, whether it holds words, and the texts."""
    curve, unit = answer.curve, _scale(answer)[1]
    points, costs = [row.point for row in curve], [row.cost for row in curve]
    seconds = time_unit([point.expected_s for point in points])
    inside = "" if unit == answer.measure else unit
    columns = [
        *_axis_columns(answer),
        (_headed(answer.measure, inside), False, [_amount(answer, row.quantity) for row in curve]),
        (_headed("80 % interval", inside), False, [_interval(answer, row.likely, _amount) for row in curve]),
        ("holds", True, [("yes" if row.surely else "undecided") if row.holds else "no" for row in curve]),
        ("batch", False, [f"{point.batch:,}" for point in points]),
        ("strategy", True, [point.strategy or "–" for point in points]),
        (_headed("expected", seconds.name), False, [seconds.text(point.expected_s) for point in points]),
        (_headed("simulated", seconds.name), False, [seconds.text(point.iteration_s) for point in points]),
        ("samples/s", False, ["–" if point.refusal else three_digits(point.samples_per_s) for point in points]),
    ]
    known: dict[str, list[float | None]] = {
        "device hours": [cost.device_hours if cost else None for cost in costs],
        "money": [cost.money if cost else None for cost in costs],
        "energy [kWh]": [cost.energy_kwh if cost else None for cost in costs],
        "lost to failures [min]": [cost.lost_s / 60 if cost and cost.checkpoint_every_s else None for cost in costs],
    }
    for head, values in known.items():
        if head != answer.measure and any(value is not None for value in values):
            columns.append((head, False, [three_digits(math.nan if value is None else value) for value in values]))
    return columns


def _axis_columns(answer: SizeAnswer) -> list[tuple[str, bool, list[str]]]:
    """Return the columns that tell points apart: the number of devices, and the cluster where there are several."""
    curve, points = answer.curve, [row.point for row in answer.curve]
    if answer.axis == "bytes/s":
        return [("bandwidth [GB/s]", False, [three_digits(row.x / GIGA) for row in curve])]
    if answer.axis == "samples a device":
        return [("samples a device", False, [f"{row.x:,.0f}" for row in curve])]
    if answer.axis == "offer":
        return [("offer", True, [point.cluster for point in points])]
    bases = [point.sized.base for point in points]
    several = len(set(bases)) > 1
    return [
        *([("cluster", True, bases)] if several else []),
        ("devices", False, [f"{point.devices:,}" for point in points]),
        ("nodes", False, [f"{point.nodes:,}" for point in points]),
    ]


def _headed(title: str, unit: str) -> str:
    """Return a heading with its unit, if any."""
    return f"{title} [{unit}]" if unit else title


def size_table(answer: SizeAnswer) -> Table:
    """Return the curve as a table for the terminal; the answer's row is marked."""
    columns = size_columns(answer)
    words = [i for i, (_, is_word, _) in enumerate(columns) if is_word]
    rows = [[texts[i] for _, _, texts in columns] for i in range(len(answer.curve))]
    for row, cells in zip(answer.curve, rows, strict=True):
        cells[0] = f"→ {cells[0]}" if row is answer.best else cells[0]
    return text_table(answer.question, [head for head, _, _ in columns], rows, words=words)


def _with_interval(answer: SizeAnswer, row: CurvePoint) -> str:
    """Return a point's quantity with its interval."""
    interval = _interval(answer, row.likely, _quantity)
    return _quantity(answer, row.quantity) + (f" (80 % interval {interval})" if interval != "–" else "")


def _interval(answer: SizeAnswer, likely: tuple[float, float] | None, text: Callable[[SizeAnswer, float], str]) -> str:
    """Return an interval as text, each end as a function writes it."""
    if likely is None or not math.isfinite(likely[1]):
        return "–"
    return f"{text(answer, likely[0])} to {text(answer, likely[1])}"


def training_unit(least_s: float) -> tuple[float, str]:
    """Return the unit for times of training of at least so many seconds: its size in seconds, and its name."""
    return (HOUR_S, "h") if least_s >= 0.1 * HOUR_S else (60.0, "min") if least_s >= 6 else (1.0, "s")


def _hours(seconds: float) -> str:
    """Return a time in hours, or in a smaller unit."""
    factor, unit = training_unit(seconds)
    return f"{three_digits(seconds / factor)} {unit}"
