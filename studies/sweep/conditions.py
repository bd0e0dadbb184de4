"""Conditions on the columns of a table, such as ``devices <= 96 and strategy != 'data'``: comparisons, and no more."""

import ast
import re
from collections.abc import Collection

import pandas as pd

from groundwork.errors import ConfigError

_LONGEST, _MOST_NODES, _DEEPEST = 2_000, 300, 40
"""Bounds of a condition in characters, in parts and in levels of nesting: more than people write."""
_ALLOWED = (
    "Expression BoolOp And Or UnaryOp Not Invert USub UAdd Compare Eq NotEq Lt LtE Gt GtE In NotIn "
    "BinOp Add Sub Mult Div FloorDiv Mod BitAnd BitOr Name Load Constant List Tuple"
)
"""What a condition may hold: no power, shift or call, whose values can be of any size, and no attribute."""


def selected(frame: pd.DataFrame, condition: str, what: str) -> "pd.Series[bool]":
    """Return for each row of a frame whether it meets a condition such as ``devices <= 96 and strategy != 'data'``.

    Args:
        frame: Columns that the condition may name.
        condition: Expression of ``pandas.DataFrame.eval`` with comparisons and sums, without calls.
        what: Words for the condition in an error message.

    Raises:
        ConfigError: The condition cannot be evaluated, names an unknown column, or compares nothing.
    """
    texts = {str(name) for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])}
    problem = _problem(condition, texts)
    if not problem:
        try:
            kept = frame.eval(condition, engine="python")
            if isinstance(kept, pd.Series) and kept.dtype == bool:
                return kept
            problem = "must compare columns"
        except Exception as error:  # pandas raises whatever the expression makes it raise
            problem = f"cannot be used ({' '.join(str(error).split())})"
    known = ", ".join(map(str, frame.columns))
    raise ConfigError(f"{what} {condition[:_LONGEST]!r} {problem}; columns are {known}")


def _problem(condition: str, texts: Collection[str]) -> str:
    """Return what makes a condition unusable before it is evaluated; empty if nothing does."""
    if len(condition) > _LONGEST:
        return f"must have at most {_LONGEST:,} characters, got {len(condition):,}"
    try:
        tree = ast.parse(re.sub(r"`[^`]*`", "column", condition.strip()), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        return f"cannot be used ({error.msg if isinstance(error, SyntaxError) else 'it is nested too deeply'})"
    level: list[ast.AST] = [tree]
    nodes = 0
    for _ in range(_DEEPEST):
        nodes += len(level)
        for node in level:
            if type(node).__name__ not in _ALLOWED.split():
                return f"must compare columns, without {type(node).__name__}"
            if isinstance(node, ast.BinOp) and any(_is_text(side, texts) for side in (node.left, node.right)):
                return "must not compute with texts"
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level or nodes > _MOST_NODES:
            break
    return "must be shorter" if level or nodes > _MOST_NODES else ""


def _is_text(node: ast.AST, texts: Collection[str]) -> bool:
    """Return whether a side of a sum or product is a text, or a list."""
    if isinstance(node, ast.Name):
        return node.id in texts
    return isinstance(node, ast.List | ast.Tuple | ast.Constant) and not isinstance(
        getattr(node, "value", None), int | float
    )
