"""Headline, crossovers and table of a sweep of compressions, printed alike by the terminal and the page."""

import math

from rich.table import Table
from rich.text import Text

from reports.tables.text_table import text_table
from studies.eight_bit.compression_points import CompressionPoint
from studies.eight_bit.compression_sweep import CompressionSweep
from studies.eight_bit.thresholds import BEST, Crossing

_AXES = {"link_speed": "link speed", "devices": "devices", "sub_batches": "sub-batches"}


def eight_bit_headline(sweep: CompressionSweep) -> str:
    """Return the finding in one sentence: the fastest data type on most devices, with today's links."""
    devices, speed = sweep.devices[-1], _todays_speed(sweep)
    points = [point for kind in sweep.types if (point := sweep.best(kind, devices, speed))]
    where = f"{devices:,} devices of {sweep.cluster}, {sweep.link_class} at {speed_text(sweep, speed)}"
    if not points:
        return f"No point has a plan: {sweep.model} on {where}."
    best = min(points, key=lambda point: point.iteration_s)
    plain = next((point for point in points if point.type == sweep.types[0]), None)
    setting = f"for {sweep.model} on {where}: {best.speedup:.3g}× one device"
    if plain is None:
        return f"{_with(best)} is fastest {setting}."
    gain = f"{plain.iteration_s / best.iteration_s - 1:+z.1%}"
    if gain == "+0.0%":
        return f"Compression does not pay: no type is faster than {_with(plain)} {setting}."
    return f"Compression pays: {_with(best)} is fastest {setting}, {gain} compared with {_with(plain)}."


def _todays_speed(sweep: CompressionSweep) -> float:
    return min(sweep.link_speeds, key=lambda factor: abs(math.log(factor)))


def _with(point: CompressionPoint) -> str:
    return f"{point.type} with {point.sub_batches if point.sub_batches > 1 else 'no'} sub-batches"


def speed_text(sweep: CompressionSweep, factor: float) -> str:
    """Return the link speed that a factor stands for, with its unit."""
    speed = factor * sweep.link_bytes_per_s
    return f"{1e-9 * speed:.3g} GB/s" if speed >= 1e9 else f"{1e-6 * speed:.3g} MB/s"


def shown_crossings(sweep: CompressionSweep) -> list[Crossing]:
    """Return the crossovers over link speed, then over devices with today's links, each with the best sub-batches."""
    speed = _todays_speed(sweep)
    best = [each for each in sweep.crossings if each.sub_batches == BEST and each.axis != "sub_batches"]
    return [each for each in best if each.axis == "link_speed"] + [
        each for each in best if each.axis == "devices" and each.link_speed == speed
    ]


def crossing_lines(sweep: CompressionSweep) -> list[str]:
    """Return a sentence for each of ``shown_crossings``."""
    lines = []
    for each in shown_crossings(sweep):
        place = f"{each.devices:,} devices" if each.axis == "link_speed" else speed_text(sweep, each.link_speed)
        lines.append(f"{each.type}, {place}: {crossing_words(sweep, each)}")
    return lines


def crossing_words(sweep: CompressionSweep, crossing: Crossing) -> str:
    """Return the ranges of an axis in which a type pays, in words."""

    def at(value: float) -> str:
        if crossing.axis == "link_speed":
            return f"{value:.3g}× ({speed_text(sweep, value)})"
        return f"{value:.3g}"

    whole = f"from {at(crossing.low)} to {at(crossing.high)} {_AXES[crossing.axis]}"
    if not crossing.thresholds:
        return f"pays {whole}" if crossing.pays_at_low else f"does not pay {whole}"
    pays, words = crossing.pays_at_low, [f"pays from {at(crossing.low)}"] if crossing.pays_at_low else []
    for threshold, (low, high) in zip(crossing.thresholds, crossing.between, strict=True):
        pays = not pays
        where = f"at {at(threshold)}" if crossing.axis == "link_speed" else f"between {low:g} and {high:g}"
        words.append(f"{'starts to pay' if pays else 'stops paying'} {where}")
    method = ("bisected" if crossing.exact else "interpolated") if crossing.axis == "link_speed" else ""
    return f"{', '.join(words)} {_AXES[crossing.axis]}{f' ({method})' if method else ''}"


def compression_table(sweep: CompressionSweep) -> Table:
    """Return the table of speedups: a row for each number of devices and link speed, a column for each type."""
    title = (
        f"{sweep.model} on {sweep.cluster}, {sweep.batch_per_device:,} samples per device: speedup over one "
        "device (with the best number of sub-batches)"
    )
    rows = list[list[str | Text]]()
    for devices in sweep.devices:
        for factor in sweep.link_speeds:
            points = [sweep.best(kind, devices, factor) for kind in sweep.types]
            fastest = min((point.iteration_s for point in points if point), default=math.nan)
            cells = [
                Text(f"{point.speedup:.2f} ({point.sub_batches})", style="bold" if point.iteration_s == fastest else "")
                if point
                else Text("–")
                for point in points
            ]
            rows.append([f"{devices:,}", speed_text(sweep, factor), *cells])
    ends = range(len(sweep.link_speeds) - 1, len(rows), len(sweep.link_speeds))
    return text_table(title, ["devices", sweep.link_class, *sweep.types], rows, words=(), ends=ends)
