"""Page of ``orrery accuracy``: accuracies by data type, with losses and intervals."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from executor.accuracy.accuracy_request import FLOAT32
from executor.accuracy.accuracy_result import AccuracyResult
from reports.pages.page_template import rendered
from reports.style.palette import PLAIN, SERIES
from reports.tables.accuracy_tables import MODE_WORDS, accuracy_headline, difference_text, interval_text, remarks

_COLOURS = (PLAIN, *SERIES)
"""Colours of the types, float32 first; further types repeat them, with dashed lines."""


def accuracy_html(result: AccuracyResult) -> str:
    """Return the page as HTML."""
    modes = list(dict.fromkeys(row.mode for row in result.rows))
    return rendered(
        "accuracy.html",
        result=result,
        headline=accuracy_headline(result),
        notes=remarks(result),
        modes=[(mode, MODE_WORDS[mode]) for mode in modes],
        types=_types(result),
        rows=[(row, interval_text(row.accuracy), difference_text(row)) for row in result.rows],
        plain=FLOAT32,
        data=_data(result),
    )


def _types(result: AccuracyResult) -> list[str]:
    return list(dict.fromkeys(row.type for row in result.rows))


def _data(result: AccuracyResult) -> dict[str, Any]:
    """Return the data of the figures: for each case the curves over all seeds, their mean, and the last accuracies."""
    types = _types(result)
    looks = {
        kind: {"colour": _COLOURS[i % len(_COLOURS)], "dash": "solid" if i < len(_COLOURS) else "dash"}
        for i, kind in enumerate(types)
    }
    cases = []
    for row in result.rows:
        own = [each for each in result.trainings if (each.mode, each.type) == (row.mode, row.type)]
        cases.append(
            {
                "mode": row.mode,
                "type": row.type,
                "losses": _curves([each.losses for each in own]),
                "accuracies": _curves([each.accuracies for each in own]),
                "last": [each.accuracies[-1] for each in own],
                "interval": [row.accuracy.mean, row.accuracy.low, row.accuracy.high],
                "difference": [row.difference.mean, row.difference.low, row.difference.high],
            }
        )
    return {"cases": cases, "looks": looks, "plain": FLOAT32}


def _curves(rows: Sequence[Sequence[float]]) -> dict[str, Any]:
    values = np.array(rows)
    return {"mean": values.mean(0).tolist(), "low": values.min(0).tolist(), "high": values.max(0).tolist()}
