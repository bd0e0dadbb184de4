"""Colours of all figures and pages, on light and on dark ground.

The kinds of tasks in one timeline, the parts of one bar, and the first five series with their reference series
differ by at least 18 (CIE 1976) for normal, protan, deutan and tritan vision; a test computes it.

Source:
    The hues start from Okabe and Ito, "Color Universal Design", 2008.
"""

from collections.abc import Iterable

BLUE, ORANGE, GREEN, PURPLE, OLIVE = "#1f83c4", "#e2711d", "#17b25c", "#8744d6", "#6c651e"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, OLIVE, "#c4316e", "#4a63c9", "#b58900")
"""Colours of lines, points and bars in order; further series repeat them, lines then dashed."""
PLAIN = "#7a8591"
"""Colour of the reference series: float32, printed values, a single device."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "pentagon")
"""Markers of the series, which tell them apart without colours."""
COMPUTE = BLUE
COMMUNICATION = ORANGE
GRADIENT_SYNC = "#d78bb5"
MOVED = GREEN
"""Colour of bars that show bytes."""
IDLE = "#9aa3ad"
MARK = "#b3246a"
"""Colour of marks: the winner, a bound, a capacity."""
RUNGS = ("#a9cbe4", "#5aa5d6", BLUE, "#14608f", "#0c3f5f")
"""Colours of the execution models of the ladder, from the additive to the fullest."""
CONFIGURATIONS = ("#5b6fd6", "#0a6b45", "#e8c63a", "#873cff", "#8bc6a4", "#74c7f2", "#aa4466", "#7788aa", "#667755")
"""Colours of configurations, the most frequent first; none is a colour of the bars in the boxes of layers."""

PALETTE = {name: value for name, value in globals().items() if name.isupper()}
"""Colours above by name, for the style sheets of pages."""

_KINDS = {
    "forward": BLUE,
    "activation_gradient": "#74c7f2",
    "weight_gradient": "#0a6b45",
    "bias_gradient": "#8bc6a4",
    "epilogue_gradient": "#5b6fd6",
    "update": "#e8c63a",
    "transfer": "#d9640f",
    "send": ORANGE,
    "receive": "#f0a868",
    "collective": GRADIENT_SYNC,
    "gradient_sync": GRADIENT_SYNC,
    "compress": "#873cff",
    "decompress": "#b4d287",
}
_OTHERS = ("#999933", "#44aa99", "#aa4466", "#7788aa", "#bb8855", "#667755")


def kind_colours(kinds: Iterable[str]) -> dict[str, str]:
    """Return the colour of every kind of task, in the order of an iteration; unknown kinds take remaining colours."""
    order = list(_KINDS)
    listed = sorted(dict.fromkeys(kinds), key=lambda kind: order.index(kind) if kind in order else len(order))
    unknown = [kind for kind in listed if kind not in _KINDS]
    others = {kind: _OTHERS[i % len(_OTHERS)] for i, kind in enumerate(unknown)}
    return {kind: _KINDS.get(kind) or others[kind] for kind in listed}
