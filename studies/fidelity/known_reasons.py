"""Reasons of large errors, as far as they were diagnosed."""

from collections.abc import Callable

from studies.fidelity.judged_row import JudgedRow

__all__ = ["reason_of"]

_Rule = tuple[Callable[[JudgedRow], bool], str]


def _has(*words: str) -> Callable[[JudgedRow], bool]:
    """Return a test whether a row's comparison or label has all of some words."""
    return lambda row: all(word in f"{row.comparison} {row.label}" for word in words)


_RULES: tuple[_Rule, ...] = (
    (_has("cuDNN 4."), "cuDNN 4, before its Winograd kernels"),
    (_has("TensorFlow", "convnet"), "TensorFlow of early 2016, with cuDNN 4"),
    (
        lambda row: row.measure.startswith("training") and "batch" in row.label and _batch(row) <= 4,
        "bound by the host's launches, which are not modelled",
    ),
)
"""Tests and reasons; the first that holds counts.  A paper's row has its note as its reason."""


def _batch(row: JudgedRow) -> int:
    """Return the batch in the label of a training row."""
    return int(row.label.split("batch ")[1].split(",")[0])


def reason_of(row: JudgedRow) -> str:
    """Return why a row is far off, or an empty text where nobody knows."""
    return row.reason or next((reason for test, reason in _RULES if test(row)), "")
