"""What an iteration is expected to take, from the recorded errors of what its prediction is made of.

A simulated iteration of T seconds has a share c of computation and idle time and a share x of exposed communication.
Each has an error, the logarithm of measured over simulated time, with the median m and an 80 % interval that reaches
from there down by l and up by h; several devices add the error of their overlap and interference, o:

    expected   T (c exp(m_c) + x exp(m_x)) exp(m_o): the median
    low end    exp of the median's logarithm less sqrt((c' l_c)^2 + (x' l_x)^2 + l_o^2)
    high end   exp of the median's logarithm plus sqrt((c' h_c)^2 + (x' h_x)^2 + h_o^2)

with the shares c' and x' after the correction, and the errors of the parts independent of each other.  The ends are the
quantiles at 10 and 90 %; T itself may lie outside them, where measured times were longer, or shorter, than almost all
that were simulated.

Two strategies of one model on one cluster have the same errors of kernels, links and overlap.  In the logarithm of the
ratio of their times these cancel as far as the shares are equal; what stays is the difference of the shares times the
error of each part, and for each strategy the errors that it has for itself, since its kernels and messages have other
sizes.  The median of the ratio is the ratio of the medians.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("recorded.json")
"""The results that ship, with which ``orrery fidelity --check`` compares."""
COMPUTATION = "computation"
BY_RELATIVE = "computation, another device's shares"
"""Part that stands for computation where the device was not measured in the arithmetic."""
HALF = "computation in half precision"
HALF_BY_RELATIVE = "computation in half precision, another device's shares"
"""The same in arithmetic of sixteen bits or fewer, where they were recorded; else the parts above count."""
WIDE_ARITHMETIC = ("", "float64", "float32", "tf32")
"""Arithmetic of more than sixteen bits, and that of compute profiles, which is float32."""
INSIDE = {True: "communication in a machine, above 1 MiB", False: "communication in a machine, up to 1 MiB"}
BETWEEN = {True: "communication between machines, above 1 MiB", False: "communication between machines, up to 1 MiB"}
"""Parts by whether messages are large."""
OVERLAP = "overlap on several devices"
REAL_OVERLAP = "overlap, interference and spread on several devices"
MIB_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class PartError:
    """Quantiles of the error of one part of a prediction, the logarithm of measured over simulated time."""

    low: float
    """Below it are 10 % of the errors."""
    median: float
    high: float
    """Below it are 90 % of the errors."""
    specific: float
    """Half-width of the errors that two strategies do not share."""
    rows: int
    """Measured rows that it is from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeParts:
    """What a predicted time is made of."""

    total_s: float
    """Time that the machine takes, whatever the input of samples."""
    exposed_s: float
    """Part of ``total_s`` in which the busiest device waits for communication."""
    devices: int
    message_bytes: float
    """Usual size of what is sent at once."""
    nodes: int = 1
    """Machines that the devices are in."""
    real: bool = False
    """True if the prediction has interference and spread."""
    by_relative: bool = False
    """True if a device's speed in the arithmetic was measured on a relative only."""
    half: bool = False
    """True in arithmetic of sixteen bits or fewer."""
    input_s: float = 0.0
    """Time in which the samples come, by the rate that a user gives: no iteration is shorter, and it has no error."""

    @property
    def exposed(self) -> float:
        """Share of exposed communication, in [0, 1]."""
        return min(max(self.exposed_s / self.total_s, 0.0), 1.0) if self.total_s > 0 else 0.0


@cache
def recorded_errors() -> Mapping[str, PartError]:
    """Return the errors that ship; nothing where none were recorded."""
    if not RECORDED.exists():
        return {}
    stored: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))["errors"]
    return {part: PartError(**fields) for part, fields in stored.items()}


def expected_s(parts: TimeParts, errors: Mapping[str, PartError] | None = None) -> float:
    """Return the median of the times that an iteration may take, in seconds; the simulated time if errors are unknown.

    It lies in the interval of ``likely_s``, which is of the same distribution.

    Args:
        parts: The simulated time and its shares.
        errors: Errors of the parts; those that ship if None.
    """
    known = recorded_errors() if errors is None else errors
    machine_s = parts.total_s * _stretch(parts, known) if _are_known(parts, known) else parts.total_s
    return max(machine_s, parts.input_s)


def likely_s(parts: TimeParts, errors: Mapping[str, PartError] | None = None) -> tuple[float, float] | None:
    """Return the 80 % interval of the times that an iteration may take.

    Args:
        parts: The simulated time and its shares.
        errors: Errors of the parts; those that ship if None.

    Returns:
        The quantiles at 10 and 90 %, in seconds.  None where an error that is needed is not known.
    """
    known = recorded_errors() if errors is None else errors
    if not _are_known(parts, known):
        return None
    weights, median_s = _weights(parts, known), parts.total_s * _stretch(parts, known)
    down = math.hypot(*(share * (known[part].median - known[part].low) for part, share in weights.items()))
    up = math.hypot(*(share * (known[part].high - known[part].median) for part, share in weights.items()))
    return max(median_s * math.exp(-down), parts.input_s), max(median_s * math.exp(up), parts.input_s)


def told_apart(one: TimeParts, other: TimeParts, errors: Mapping[str, PartError] | None = None) -> bool:
    """Return whether it is 80 % likely which of two strategies of one model on one cluster is faster."""
    likely = likely_ratio(one, other, errors)
    return likely is None or not likely[0] <= 1 <= likely[1]  # None: nothing speaks against the prediction


def likely_ratio(
    one: TimeParts, other: TimeParts, errors: Mapping[str, PartError] | None = None, *, same_kernels: bool = False
) -> tuple[float, float] | None:
    """Return the 80 % interval of the ratio of two predicted times of one model.

    Args:
        one: Parts of the time above the line.
        other: Parts of the time below it.
        errors: Errors of the parts; those that ship if None.
        same_kernels: True where both compute the same layers in the same parts on the same kind of devices, so that
            the errors of computation are the same to the last kernel.

    Returns:
        Lowest and highest likely ratio; None where an error that is needed is not known.
    """
    known = recorded_errors() if errors is None else errors
    if not (_are_known(one, known) and _are_known(other, known)):
        return None
    if same_kernels and one == other:
        return 1.0, 1.0  # the change touches nothing that the time is made of, so every error is shared
    median = expected_s(one, known) / expected_s(other, known)
    first, second = _weights(one, known), _weights(other, known)
    terms = []
    for part in {**first, **second}:
        a, b, error = first.get(part, 0.0), second.get(part, 0.0), known[part]
        terms.append((a - b) * (error.high - error.low) / 2)
        if not (same_kernels and part in (COMPUTATION, BY_RELATIVE, HALF, HALF_BY_RELATIVE)):
            terms += [a * error.specific, b * error.specific]
    half = math.hypot(*terms)
    return median * math.exp(-half), median * math.exp(half)


def _are_known(parts: TimeParts, errors: Mapping[str, PartError]) -> bool:
    """Return whether the errors of all parts that count are known."""
    several = [_overlap(parts), *[_class(parts)] * (parts.exposed > 0)]
    return {_computation(parts, errors), *(several if parts.devices > 1 else ())} <= errors.keys()


def _computation(parts: TimeParts, errors: Mapping[str, PartError]) -> str:
    """Return the part that stands for computation: by what the prediction rests on, as far as errors are known."""
    if parts.half and (half := HALF_BY_RELATIVE if parts.by_relative else HALF) in errors:
        return half
    return BY_RELATIVE if parts.by_relative else COMPUTATION


def _class(parts: TimeParts) -> str:
    """Return the class of the messages."""
    return (BETWEEN if parts.nodes > 1 else INSIDE)[parts.message_bytes > MIB_BYTES]


def _overlap(parts: TimeParts) -> str:
    """Return the part that stands for overlap under the execution model of the prediction."""
    return REAL_OVERLAP if parts.real else OVERLAP


def _weights(parts: TimeParts, errors: Mapping[str, PartError]) -> dict[str, float]:
    """Return by how much the time grows with each part's error: shares after the correction."""
    computation = _computation(parts, errors)
    if parts.devices < 2:
        return {computation: 1.0}
    compute = (1 - parts.exposed) * math.exp(errors[computation].median)
    if not parts.exposed:
        return {computation: 1.0, _overlap(parts): 1.0}
    sent = parts.exposed * math.exp(errors[_class(parts)].median)
    return {computation: compute / (compute + sent), _class(parts): sent / (compute + sent), _overlap(parts): 1.0}


def _stretch(parts: TimeParts, errors: Mapping[str, PartError]) -> float:
    """Return the expected time over the simulated one."""
    compute = math.exp(errors[_computation(parts, errors)].median)
    if parts.devices < 2:
        return compute
    sent = math.exp(errors[_class(parts)].median) if parts.exposed else 0.0
    return ((1 - parts.exposed) * compute + parts.exposed * sent) * math.exp(errors[_overlap(parts)].median)
