"""What a sweep of compressions says, in words and columns; the terminal and the page print the same."""

import math

from rich.table import Table
from rich.text import Text

from studies.eight_bit import BEST, CompressionPoint, CompressionSweep, Crossing

__all__ = [
    "compression_table",
    "crossing_lines",
    "crossing_words",
    "eight_bit_headline",
    "shown_crossings",
    "speed_text",
]

_AXES = {"link_speed": "link speed", "devices": "devices", "sub_batches": "sub-batches"}


def eight_bit_headline(sweep: CompressionSweep) -> str:
    """What is best on most devices with links as they are, and from where on compression pays there."""
    devices, speed = sweep.devices[-1], _as_they_are(sweep)
    found = [point for kind in sweep.types if (point := sweep.best(kind, devices, speed))]
    where = f"{devices:,} devices of {sweep.cluster}, {sweep.link_class} at {speed_text(sweep, speed)}"
    if not found:
        return f"{sweep.model} cannot be had on {where}."
    best = min(found, key=lambda point: point.iteration_s)
    plain = next((point for point in found if point.type == sweep.types[0]), None)
    answer = f"{sweep.model} on {where}: {_with(best)} is fastest, {best.speedup:.3g}× one device"
    if plain is None or best is plain:
        return f"{answer}." if plain is None else f"{answer}; no type that was asked for pays."
    return f"{answer}, {100 * (plain.iteration_s / best.iteration_s - 1):+.1f} % beside {_with(plain)}."


def _as_they_are(sweep: CompressionSweep) -> float:
    return min(sweep.link_speeds, key=lambda factor: abs(math.log(factor)))


def _with(point: CompressionPoint) -> str:
    return f"{point.type} with {_parts(point.sub_batches)}"


def _parts(count: int) -> str:
    return f"{count} sub-batches" if count > 1 else "no sub-batches"


def speed_text(sweep: CompressionSweep, factor: float) -> str:
    """A factor of link speed as the speed itself."""
    speed = factor * sweep.link_bytes_per_s
    return f"{1e-9 * speed:.3g} GB/s" if speed >= 1e9 else f"{1e-6 * speed:.3g} MB/s"


def shown_crossings(sweep: CompressionSweep) -> list[Crossing]:
    """Those that answer the question: over link speed, then over devices with links as they are, sub-batches best."""
    speed = _as_they_are(sweep)
    best = [each for each in sweep.crossings if each.sub_batches == BEST and each.axis != "sub_batches"]
    return [each for each in best if each.axis == "link_speed"] + [
        each for each in best if each.axis == "devices" and each.link_speed == speed
    ]


def crossing_lines(sweep: CompressionSweep) -> list[str]:
    """A sentence for each of ``shown_crossings``."""
    lines = []
    for each in shown_crossings(sweep):
        place = f"{each.devices:,} devices" if each.axis == "link_speed" else speed_text(sweep, each.link_speed)
        lines.append(f"{each.type}, {place}: {crossing_words(sweep, each)}")
    return lines


def crossing_words(sweep: CompressionSweep, found: Crossing) -> str:
    """Where a type starts and stops to pay along its axis."""

    def at(value: float) -> str:
        if found.axis == "link_speed":
            return f"{value:.3g}× ({speed_text(sweep, value)})"
        return f"{value:.3g}"

    whole = f"from {at(found.low)} to {at(found.high)} {_AXES[found.axis]}"
    if not found.thresholds:
        return f"pays {whole}" if found.pays_at_low else f"does not pay {whole}"
    pays, words = found.pays_at_low, [f"pays from {at(found.low)}"] if found.pays_at_low else []
    for threshold, (low, high) in zip(found.thresholds, found.between, strict=True):
        pays = not pays
        where = f"at {at(threshold)}" if found.axis == "link_speed" else f"between {low:g} and {high:g}"
        words.append(f"{'starts to pay' if pays else 'stops'} {where}")
    told = ("bisected" if found.exact else "interpolated") if found.axis == "link_speed" else ""
    return f"{', '.join(words)} {_AXES[found.axis]}{f' ({told})' if told else ''}"


def compression_table(sweep: CompressionSweep) -> Table:
    """Lay out speedups: a row for devices and link speed, a column a type, each with its best sub-batches."""
    shown = Table(
        title=f"{sweep.model} on {sweep.cluster}, {sweep.batch_per_device:,} samples a device: speedup over one "
        "device (sub-batches that suit best)"
    )
    shown.add_column("devices", justify="right")
    shown.add_column(sweep.link_class, justify="right")
    for kind in sweep.types:
        shown.add_column(Text(kind), justify="right")
    for devices in sweep.devices:
        for factor in sweep.link_speeds:
            found = [sweep.best(kind, devices, factor) for kind in sweep.types]
            fastest = min((point.iteration_s for point in found if point), default=math.nan)
            cells = [
                Text(f"{point.speedup:.2f} ({point.sub_batches})", style="bold" if point.iteration_s == fastest else "")
                if point
                else Text("–")
                for point in found
            ]
            last = factor == sweep.link_speeds[-1]
            shown.add_row(f"{devices:,}", speed_text(sweep, factor), *cells, end_section=last)
    return shown
