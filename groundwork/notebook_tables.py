"""Tables for notebooks."""

from collections.abc import Mapping, Sequence
from html import escape


def html_table(title: str, rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows with the same columns as an HTML table below a line of text."""
    head = "".join(f"<th>{escape(name)}</th>" for name in (rows[0] if rows else ()))
    lines = ["".join(f"<td>{escape(str(value))}</td>" for value in row.values()) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<p>{escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
