"""One set of colours for every picture, on light and on dark ground.

The kinds that one timeline shows, and the parts of one bar, differ by at least 18 (CIE 1976) for
normal, protan, deutan and tritan vision; a test computes it.  The hues start from Okabe and Ito,
"Color Universal Design", 2008.
"""

from collections.abc import Iterable

__all__ = ["COMMUNICATION", "COMPUTE", "IDLE", "MARK", "RUNGS", "kind_colours"]

COMPUTE = "#1f83c4"
COMMUNICATION = "#e2711d"
IDLE = "#9aa3ad"
MARK = "#b3246a"
"""What the eye must find: the winner, a bound, a capacity."""
RUNGS = ("#a9cbe4", "#5aa5d6", "#1f83c4", "#14608f", "#0c3f5f")
"""Readings of the ladder, from the plainest to the fullest."""

_KINDS = {
    "forward": "#1f83c4",
    "activation_gradient": "#74c7f2",
    "weight_gradient": "#0a6b45",
    "bias_gradient": "#8bc6a4",
    "epilogue_gradient": "#5b6fd6",
    "update": "#e8c63a",
    "transfer": "#d9640f",
    "send": "#e2711d",
    "receive": "#f0a868",
    "collective": "#d78bb5",
    "exchange": "#d78bb5",
    "compress": "#873cff",
    "decompress": "#b4d287",
}
_OTHERS = ("#999933", "#44aa99", "#aa4466", "#7788aa", "#bb8855", "#667755")


def kind_colours(kinds: Iterable[str]) -> dict[str, str]:
    """Give every kind of task its colour; kinds that are not known share the rest in order."""
    listed = list(dict.fromkeys(kinds))
    unknown = [kind for kind in listed if kind not in _KINDS]
    others = {kind: _OTHERS[i % len(_OTHERS)] for i, kind in enumerate(unknown)}
    return {kind: _KINDS.get(kind) or others[kind] for kind in listed}
