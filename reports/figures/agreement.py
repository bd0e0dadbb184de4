"""Additive cost compared with simulated time: how well the additive cost ranks strategies."""

import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from planner.plan.comparison import Comparison, StrategyResult
from reports.figures.look import add_equality, log_ticks, spread_out, styled
from reports.style.palette import COMPUTE, IDLE, MARK
from reports.style.units import time_unit
from reports.tables.likely_text import winner_of


def agreement_figure(comparison: Comparison) -> go.Figure:
    """Draw every simulated strategy as a point, with the line where both times are equal.

    Both axes are logarithmic where the times span more than a factor of 10.
    """
    points, names = _points(comparison)
    times_s = [value for _, additive_s, simulated_s, _ in points for value in (additive_s, simulated_s)]
    unit, winner = time_unit(times_s), winner_of(comparison)
    fastest = names[winner.name] if winner else ""
    figure = go.Figure()
    ends = [min(times_s) / unit.factor * 0.8, max(times_s) / unit.factor * 1.25]
    add_equality(figure, *ends)
    groups = (
        ("other strategies tried", {"size": 7, "color": IDLE, "opacity": 0.65, "symbol": "circle-open"}),
        ("compared", {"size": 11, "color": COMPUTE, "symbol": "circle"}),
        ("fastest", {"size": 15, "color": MARK, "symbol": "star"}),
    )
    places = _places(points, fastest, ends, unit.factor)
    for label, marker in groups:
        chosen = [point for point in points if _group(point, fastest) == label]
        figure.add_scatter(
            x=[additive_s / unit.factor for _, additive_s, _, _ in chosen],
            y=[simulated_s / unit.factor for _, _, simulated_s, _ in chosen],
            text=[name if places.get(name) else "" for name, _, _, _ in chosen],
            customdata=[
                [unit.full(additive_s), unit.full(simulated_s), name] for name, additive_s, simulated_s, _ in chosen
            ],
            mode="markers" if label.startswith("other") else "markers+text",
            textposition=[places.get(name) or "top center" for name, _, _, _ in chosen],
            marker=marker,
            name=label,
            hovertemplate="%{customdata[2]}<br>additive %{customdata[0]}<br>simulated %{customdata[1]}<extra></extra>",
        )
    kind: dict[str, Any] = {"type": "log" if spread_out(times_s) else "linear", "automargin": True, "zeroline": False}
    if kind["type"] == "log":
        kind |= log_ticks(*ends)
    return styled(
        figure,
        xaxis={"title": f"additive cost [{unit.name}]", **kind},
        yaxis={"title": f"simulated [{unit.name}]", **kind},
    )


def _points(comparison: Comparison) -> tuple[list[tuple[str, float, float, bool]], dict[str, str]]:
    """Return (name, additive, simulated, is compared) of every strategy that was simulated, in seconds.

    Compared strategies of equal times are one point, ``data and owt alike``; the names of points come by strategy.
    """
    alike: dict[tuple[str, str], list[StrategyResult]] = {}
    for each in comparison.strategies:
        alike.setdefault((f"{each.additive_s:.9g}", f"{each.simulated_s:.9g}"), []).append(each)
    compared, names = [], dict[str, str]()
    for members in alike.values():
        one = members[0].name
        said = f"{', '.join(each.name for each in members[:-1])} and {members[-1].name} alike" if members[1:] else one
        compared.append((said, members[0].additive_s, members[0].simulated_s, True))
        names |= {each.name: said for each in members}
    tried = comparison.tried
    others = [
        (str(name), float(tried["additive_s"].iloc[i]), float(tried["simulated_s"].iloc[i]), False)
        for i, name in enumerate(tried["name"] if len(tried) else ())
        if name not in names
    ]
    return others + compared, names


def _places(
    points: list[tuple[str, float, float, bool]], winner: str, ends: list[float], factor: float
) -> dict[str, str]:
    """Return the positions of the names of the compared strategies, the fastest first; empty if there is no room."""
    scale = math.log if spread_out([value for _, *times_s, _ in points for value in times_s]) else float
    low, high = (scale(end) for end in ends)

    def share(value_s: float) -> float:
        return (scale(value_s / factor) - low) / (high - low)

    named = sorted((point for point in points if point[3]), key=lambda point: point[0] != winner)
    shares = [(name, share(additive_s), share(simulated_s)) for name, additive_s, simulated_s, _ in named]
    return {name: place for (name, _, _), place in zip(shares, label_places(shares), strict=True)}


def _group(point: tuple[str, float, float, bool], winner: str) -> str:
    name, _, _, compared = point
    return "other strategies tried" if not compared else "fastest" if name == winner else "compared"


_LETTER, _HIGH, _POINT = 0.02, 0.075, 0.025
"""Width of a letter, height of a line and half a marker, as shares of a small figure's axes."""
_SIDES = ("top center", "bottom center", "middle right", "middle left")
LabelBox = tuple[float, float, float, float]


def label_places(points: Sequence[tuple[str, float, float]]) -> list[str]:
    """Choose the positions of labels.

    Args:
        points: Text and position of every point in shares of the axes, 0 to 1; the first points choose first.

    Returns:
        For each point a ``textposition`` of Plotly, or an empty string if the label would cover a point, another
        label or the edge on every side.
    """
    taken = [(x - _POINT, y - _POINT, x + _POINT, y + _POINT) for _, x, y in points]
    places = []
    for words, x, y in points:
        free = (side for side in _SIDES if _is_free(_box(words, x, y, side), taken))
        side = next(free, "")
        if side:
            taken.append(_box(words, x, y, side))
        places.append(side)
    return places


def _box(words: str, x: float, y: float, side: str) -> LabelBox:
    """Return left, bottom, right and top of a label on one side of a point."""
    wide = _LETTER * len(words)
    left = {"middle right": x + _POINT, "middle left": x - _POINT - wide}.get(side, x - wide / 2)
    bottom = {"top center": y + _POINT, "bottom center": y - _POINT - _HIGH}.get(side, y - _HIGH / 2)
    return left, bottom, left + wide, bottom + _HIGH


def _is_free(box: LabelBox, taken: Sequence[LabelBox]) -> bool:
    left, bottom, right, top = box
    inside = left >= 0 and right <= 1 and bottom >= 0 and top <= 1
    return inside and not any(left < r and right > a and bottom < t and top > b for a, b, r, t in taken)
