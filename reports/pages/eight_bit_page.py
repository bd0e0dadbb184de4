"""Page of ``orrery whatif eight-bit``: where compression pays."""

from typing import Any

from reports.pages.page_template import rendered
from reports.style.palette import PLAIN, SERIES, SYMBOLS
from reports.style.units import time_unit
from reports.tables.eight_bit_tables import crossing_words, eight_bit_headline, shown_crossings, speed_text
from studies.eight_bit.compression_sweep import CompressionSweep

_LOOKS = tuple(zip((PLAIN, *SERIES), SYMBOLS, strict=False))
"""Colour and marker of the types, float32 first, dotted; further types repeat them, with dashed lines."""


def eight_bit_html(sweep: CompressionSweep) -> str:
    """Return the page as HTML."""
    unit = time_unit([min(point.iteration_s for point in sweep.points if not point.reason)])
    return rendered(
        "eight_bit.html",
        sweep=sweep,
        headline=eight_bit_headline(sweep),
        crossings=[(each, crossing_words(sweep, each)) for each in shown_crossings(sweep)],
        unit=unit,
        speeds={factor: speed_text(sweep, factor) for factor in sweep.link_speeds},
        alone=time_unit([sweep.alone_s]).full(sweep.alone_s),
        data=_data(sweep),
    )


def _data(sweep: CompressionSweep) -> dict[str, Any]:
    """Return the data of the figures: points with a plan, crossovers, and the look of each type."""
    looks = {}
    for place, kind in enumerate(sweep.types):
        colour, symbol = _LOOKS[place % len(_LOOKS)]
        dash = "dot" if place == 0 else "solid" if place < len(_LOOKS) else "dash"
        looks[kind] = {"colour": colour, "symbol": symbol, "dash": dash}
    points = [point for point in sweep.points if not point.reason]
    return {
        "axes": {"link_speed": sweep.link_speeds, "sub_batches": sweep.sub_batches, "devices": sweep.devices},
        "link": {"name": sweep.link_class, "bytes_per_s": sweep.link_bytes_per_s},
        "looks": looks,
        "points": [
            {name: getattr(point, name) for name in ("type", "sub_batches", "devices", "link_speed", "speedup")}
            | {"iteration_s": point.iteration_s}
            for point in points
        ],
        "crossings": [
            {name: getattr(each, name) for name in ("axis", "type", "sub_batches", "devices", "link_speed")}
            | {"thresholds": each.thresholds, "between": each.between, "pays_at_low": each.pays_at_low}
            for each in sweep.crossings
        ],
    }
