"""Figures by kind of result, for notebooks: one function for all, because the results' own code cannot draw."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from groundwork.errors import ConfigError

_HOMES: Mapping[str, Mapping[str, str]] = {
    "Comparison": {
        "breakdown": "reports.figures.comparison:breakdown_figure",
        "ladder": "reports.figures.comparison:ladder_figure",
        "agreement": "reports.figures.agreement:agreement_figure",
    },
    "Replay": {"timeline": "reports.figures.timeline:timeline_figure"},
    "Store": {"lines": "reports.figures.decisions:sweep_figure"},
    "DataFrame": {"lines": "reports.figures.decisions:sweep_figure"},
    "OracleTable": {
        "iterations": "reports.figures.oracle:iteration_figure",
        "epochs": "reports.figures.oracle:epoch_figure",
        "memory": "reports.figures.oracle:oracle_memory_figure",
    },
    "WhatIf": {"change": "reports.figures.decisions:whatif_figure"},
    "Validation": {"ladder": "reports.figures.validation:measured_ladder_figure"},
}
"""Figures by class of the result, the default first; they are imported when drawn, and none needs torch."""


def figure(result: object, what: str = "", **options: Any) -> go.Figure:
    """Draw a result.

    Args:
        result: A comparison, replay, store of sweeps (or a frame of its points), oracle's table, what-if or validation.
        what: Name of the figure; empty for the default figure of this kind of result.
        **options: Options of the figure, such as ``x`` and ``y`` of a sweep.

    Raises:
        ConfigError: ``result`` or ``what`` has no figure.
    """
    pictures = next((_HOMES[each.__name__] for each in type(result).__mro__ if each.__name__ in _HOMES), None)
    if pictures is None:
        raise ConfigError(f"figure must be of one of {', '.join(_HOMES)}, got {type(result).__name__}")
    name = what or next(iter(pictures))
    if name not in pictures:
        raise ConfigError(f"figure of {type(result).__name__} must be one of {', '.join(pictures)}, got {what!r}")
    module, _, function = pictures[name].partition(":")
    draw: Callable[..., go.Figure] = getattr(import_module(module), function)
    drawn = draw(_frame(result) if type(result).__name__ == "Store" else result, **options)
    return drawn.update_layout(template="plotly_white", paper_bgcolor=None, plot_bgcolor=None)


def _frame(store: Any) -> pd.DataFrame:
    frame: pd.DataFrame = store.to_frame()
    return frame
