"""Names of plans where there is little room: texts of options are broken at their commas."""

from collections.abc import Sequence
from typing import Any

_MOST = 32
"""Characters of a line, as far as commas allow."""


def broken_name(name: str, line_break: str) -> str:
    """Return the name of a plan with breaks behind commas where it is long."""
    lines = list[str]()
    for word in name.split(","):
        if lines and len(lines[-1]) + len(word) < _MOST:
            lines[-1] += f",{word}"
        else:
            lines.append(word)
    return f",{line_break}".join(lines)


def plan_ticks(names: Sequence[str]) -> dict[str, Any]:
    """Return settings of an axis of plans whose labels are broken; none where no name is long."""
    labels = [broken_name(name, "<br>") for name in names]
    return {"tickvals": list(names), "ticktext": labels} if labels != list(names) else {}
