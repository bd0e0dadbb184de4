"""Intervals of the errors of parts of a prediction, and how many rows of other devices fall into them.

The error of a row is the logarithm of measured over predicted time.  Rows of one device or system are wrong together,
so that each group has the same weight, however many rows it has, and a cross-validation leaves out whole groups.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats
from planner.expected.likely_times import (
    BETWEEN,
    BY_RELATIVE,
    COMPUTATION,
    HALF,
    HALF_BY_RELATIVE,
    INSIDE,
    MIB_BYTES,
    OVERLAP,
    REAL_OVERLAP,
    WIDE_ARITHMETIC,
    PartError,
    TimeParts,
    likely_s,
)
from studies.fidelity.judged_row import (
    CALIBRATED_MEASURE,
    MEASURES,
    PYTORCH_MEASURE,
    RELATIVE_MEASURE,
    JudgedRow,
    OwnMeasure,
)

_TAIL = 0.1
"""Share of the errors below, and above, an interval."""
_REPEAT = 0.01
"""Least spread of rows of one group: speedups of one system in two versions of Horovod's table differ by 1.4 %."""
_LARGE_BYTES = 2**25
"""Usual size of a message of the measured iterations: gradients of whole layers."""
_LIKE = 4
"""Largest ratio of batches whose rows are compared for errors that two plans do not share."""
_COLLECTIVES = tuple(
    measure.name for measure in MEASURES if measure.kind == "collectives" and measure.name != CALIBRATED_MEASURE
)
_COMPUTATIONS = (COMPUTATION, BY_RELATIVE, HALF, HALF_BY_RELATIVE)
_MEASURES = {
    COMPUTATION: ("training on one GPU",),
    BY_RELATIVE: (RELATIVE_MEASURE,),
    HALF: (PYTORCH_MEASURE, OwnMeasure.NETWORKS),
    HALF_BY_RELATIVE: (RELATIVE_MEASURE,),
    **dict.fromkeys((*INSIDE.values(), *BETWEEN.values()), _COLLECTIVES),
    OVERLAP: ("several GPUs relative to one, ideal machines",),
    REAL_OVERLAP: ("several GPUs relative to one, default options",),
}
"""Measures whose rows judge each part of a prediction; those of collectives by size and number of machines."""


class Coverage(NamedTuple):
    """How many measured rows fall into intervals that were made without their device or system."""

    part: str
    rows: int
    groups: int
    inside: float
    """Share of the rows inside; NaN where there is one group only."""


class _Errors(NamedTuple):
    """Errors of rows, with the number of the group of each."""

    values: Floats
    group: Floats

    def without(self, group: int) -> "_Errors":
        """Return the errors of all other groups."""
        keep = self.group != group
        return _Errors(self.values[keep], self.group[keep])

    @property
    def groups(self) -> list[int]:
        """Numbers of the groups that have rows."""
        return [int(number) for number in np.unique(self.group)]


def part_errors(rows: Iterable[JudgedRow]) -> dict[str, PartError]:
    """Return the errors of each part that a prediction can be made of, for ``planner.expected.likely_times.likely_s``.

    Rows to which a profile was fitted are left out.
    """
    known = [row for row in rows if row.is_predicted and not row.fitted]
    result = {}
    for part in _MEASURES:
        own = _rows_of(part, known)
        if own:
            low, median, high = _quantiles(_errors(own))
            result[part] = PartError(
                low=_short(low),
                median=_short(median),
                high=_short(high),
                specific=_short(_specific(own)),
                rows=len(own),
            )
    return result


def coverages(rows: Iterable[JudgedRow]) -> list[Coverage]:
    """Return the coverage of the 80 % interval of each part, and of whole iterations on several GPUs.

    Each device or system is left out in turn from all that its intervals are made of.
    """
    known = [row for row in rows if row.is_predicted and not row.fitted]
    result = []
    for part in _MEASURES:
        own = _rows_of(part, known)
        if own:
            errors = _errors(own)
            inside = _left_out(errors)
            result.append(Coverage(part, len(own), len(errors.groups), float(inside.mean()) if len(inside) else np.nan))
    for part, real in ((OVERLAP, False), (REAL_OVERLAP, True)):
        several = _rows_of(part, known)
        if several and _rows_of(COMPUTATION, known):
            whole = [_whole_inside(row, known, real=real) for row in several]
            name = f"whole iterations on several GPUs{', with interference and spread' if real else ''}"
            result.append(Coverage(name, len(several), len({row.group for row in several}), float(np.mean(whole))))
    judged = [each for each in result if each.inside == each.inside]
    if len(judged) > 1:
        rows_judged = sum(each.rows for each in judged)
        inside_all = sum(each.rows * each.inside for each in judged) / rows_judged
        result.append(Coverage("all of them", rows_judged, len({row.group for row in known}), inside_all))
    return result


def _whole_inside(row: JudgedRow, rows: Sequence[JudgedRow], *, real: bool) -> bool:
    """Return whether the time of an iteration lies in its interval, made without the row's device and system."""
    others = [each for each in rows if each.group not in (row.group, row.profile)]
    parts = TimeParts(total_s=1.0, exposed_s=row.communication, devices=2, message_bytes=float(_LARGE_BYTES), real=real)
    likely = likely_s(parts, part_errors(others))
    return likely is not None and likely[0] <= math.exp(-row.log_ratio - row.alone) <= likely[1]


def _short(value: float) -> float:
    """Return a number to four digits."""
    return float(f"{value:.4g}")


def _rows_of(part: str, rows: Sequence[JudgedRow]) -> list[JudgedRow]:
    own = [row for row in rows if row.measure in _MEASURES[part]]
    if part in _COMPUTATIONS:
        half = part in (HALF, HALF_BY_RELATIVE)
        return [row for row in own if (row.arithmetic not in WIDE_ARITHMETIC) == half]
    if _MEASURES[part] != _COLLECTIVES:
        return own
    return [row for row in own if (BETWEEN if row.nodes > 1 else INSIDE)[row.size > MIB_BYTES] == part]


def _errors(rows: Sequence[JudgedRow]) -> _Errors:
    number = {name: i for i, name in enumerate(dict.fromkeys(row.group for row in rows))}
    return _Errors(np.array([-row.log_ratio for row in rows]), np.array([float(number[row.group]) for row in rows]))


def _quantiles(errors: _Errors) -> tuple[float, float, float]:
    """Return the quantiles at 10, 50 and 90 % of the error of a row of another device or system.

    The error of a row is that of its group plus one of its own.  Groups are few: with the mean m and the spread s of
    the medians of n of them, the median of another one is m + s sqrt(1 + 1/n) t, where t has Student's distribution
    with n - 1 degrees of freedom.  Rows are many, and their tails are long and lie on one side, so that a spread
    about normal errors is too wide for most: the error of a row about its group's median has the distribution that
    was measured, each group with the same weight.  The quantiles are those of the sum of the two.
    Of one group alone the spread of others is not known: it counts as that of its rows, with the t of two groups.
    """
    from scipy.special import stdtr  # imported here: few commands need it, and it takes long to load

    own = [errors.values[errors.group == number] for number in errors.groups]
    medians, count = np.array([np.median(values) for values in own]), len(own)
    about = np.concatenate([values - median for values, median in zip(own, medians, strict=True)])
    weights = np.concatenate([np.full(len(values), 1 / len(values) / count) for values in own])
    between = medians.var(ddof=1) if count > 1 else weights @ about**2
    spread = np.sqrt(between * (1 + 1 / count) + _REPEAT**2)

    def below(value: float) -> float:
        """Return the share of errors that lie below the mean of the medians and a value."""
        return float(weights @ stdtr(max(count - 1, 1), (value - about) / spread))

    low, median, high = (medians.mean() + _root_of(below, share, start=spread) for share in (_TAIL, 0.5, 1 - _TAIL))
    return float(low), float(median), float(high)


def _root_of(grows: Callable[[float], float], aim: float, start: float) -> float:
    """Return where a growing function reaches a value."""
    from scipy.optimize import brentq  # imported here for the same reason

    reach = start
    while not grows(-reach) < aim < grows(reach):
        reach *= 2
    return float(brentq(lambda value: grows(value) - aim, -reach, reach))


def _left_out(errors: _Errors) -> Floats:
    """Return for each row whether it lies in the interval of the other groups; nothing where there are none."""
    inside = []
    for number in errors.groups if len(errors.groups) > 1 else []:
        low, _, high = _quantiles(errors.without(number))
        own = errors.values[errors.group == number]
        inside.append((own >= low) & (own <= high))
    return np.concatenate(inside) if inside else np.empty(0)


def _specific(rows: Sequence[JudgedRow]) -> float:
    """Return the 80 % half-width of the errors that two plans of one model on one cluster do not share.

    From pairs of rows that differ in little but sizes: of one comparison and subject, with batches within ``_LIKE``.
    The difference of two independent errors is wider than one by the square root of two.
    """
    alike: dict[tuple[str, str], list[JudgedRow]] = {}
    for row in rows:
        alike.setdefault((row.comparison, row.subject), []).append(row)
    differences = np.concatenate([_differences(several) for several in alike.values()])
    return float(np.quantile(differences, 1 - 2 * _TAIL) / np.sqrt(2)) if len(differences) else 0.0


def _differences(rows: Sequence[JudgedRow]) -> Floats:
    """Return how far the errors of each two rows whose batches are within ``_LIKE`` are apart."""
    one, other = np.triu_indices(len(rows), 1)
    sizes, log_ratios = np.array([(row.size, row.log_ratio) for row in rows]).T
    near = np.maximum(sizes[one], sizes[other]) <= _LIKE * np.minimum(sizes[one], sizes[other])
    apart: Floats = np.abs(log_ratios[one] - log_ratios[other])[near]
    return apart
