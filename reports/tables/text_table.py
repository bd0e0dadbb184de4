"""Tables of texts for the terminal."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text


def text_table(
    title: str | None,
    headers: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    words: Collection[int] = (0,),
    styles: Mapping[int, str] | None = None,
    ends: Collection[int] = (),
    **of_words: Any,
) -> Table:
    """Return a table whose cells are shown as they are: numbers to the right, words to the left.

    Args:
        title: Line above the table; None for none.
        headers: Headings of the columns.
        rows: Cells of each row.
        words: Columns of words.
        styles: Styles of rows, by their index; others are plain.
        ends: Rows that a line is drawn below, by index.
        **of_words: Settings of the columns of words, such as ``no_wrap``.
    """
    table = Table(title=title)
    for i, header in enumerate(headers):
        settings: dict[str, Any] = {"justify": "left", **of_words} if i in words else {"justify": "right"}
        table.add_column(Text(header), **settings)
    for i, cells in enumerate(rows):
        texts = (cell if isinstance(cell, Text) else Text(cell) for cell in cells)
        table.add_row(*texts, style=(styles or {}).get(i, ""), end_section=i in ends)
    return table
