"""Positions of labels beside points, chosen so that labels cover neither points nor one another."""

from collections.abc import Sequence

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
