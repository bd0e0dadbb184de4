"""Results of sweeps for the terminal."""

from collections.abc import Sequence

import pandas as pd
from pandas.api.types import is_integer_dtype, is_numeric_dtype
from rich.table import Table
from rich.text import Text

from reports.units import Unit, byte_unit, memory_unit, plain_unit, time_unit

__all__ = ["column_label", "column_texts", "column_unit", "sweep_table"]

_UNITS = {"_per_s": plain_unit, "memory_bytes": memory_unit, "_bytes": byte_unit, "_s": time_unit}
"""By how a column's name ends; the first that fits."""


def column_texts(name: str, values: "pd.Series[float]") -> tuple[str, list[str]]:
    """A column's header, with its unit, and its cells; a dash where there is nothing."""
    if not is_numeric_dtype(values):
        return name, [text if text and not pd.isna(text) else "–" for text in values.astype(object)]
    numbers: Sequence[float] = values.astype(float).tolist()
    if is_integer_dtype(values):
        return name, [f"{number:,.0f}" for number in numbers]
    unit, has_unit = column_unit(name, numbers), any(name.endswith(suffix) for suffix in _UNITS)
    whole = all(number == round(number) for number in numbers if number == number)
    texts = [
        f"{number:,.0f}" if whole and not has_unit and number == number else unit.text(number) for number in numbers
    ]
    return f"{column_label(name)} [{unit.name}]" if unit.name else name, texts


def column_unit(name: str, numbers: Sequence[float]) -> Unit:
    """Unit of a column, by how its name ends."""
    return next((choose for suffix, choose in _UNITS.items() if name.endswith(suffix)), plain_unit)(numbers)


def column_label(name: str) -> str:
    """A column's name without its SI unit."""
    return name if name.endswith("_per_s") else name.removesuffix("_bytes").removesuffix("_s")


def sweep_table(frame: pd.DataFrame) -> Table:
    """Lay out one row a point; columns that hold one value in all rows go into the title, empty ones away."""
    single = {name: frame[name].iloc[0] for name in frame.columns if len(frame) > 1 and frame[name].nunique(False) == 1}
    said = [f"{name} {value}" for name, value in single.items() if value != "" and not pd.isna(value)]
    table = Table(title=", ".join(said) or None)
    shown = [name for name in frame.columns if name not in single]
    cells = []
    for name in shown:
        header, texts = column_texts(name, frame[name])
        table.add_column(Text(header), justify="right" if is_numeric_dtype(frame[name]) else "left")
        cells.append(texts)
    for row in zip(*cells, strict=True):
        table.add_row(*(Text(cell) for cell in row))
    return table
