"""The work of encoding and decoding messages, and how long devices take for it."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from hwprofiles.compute import ComputeProfile
from hwprofiles.kernels import Kernels
from planner.compression import Compression
from planner.costs import CostModel
from planner.regions import Pieces

__all__ = ["MEASURED", "Coding", "coding_s", "decoding_of", "encoding_of"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MEASURED = "coding"
"""In place of a model's name in the measured parts of a profile, whose layer is then a data type, whose phase is
``compress`` or ``decompress``, and whose parts have one size: the numbers in a message."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coding:
    """What devices encode and decode in one task each, arrays of one shape."""

    encoded: Ints
    """Numbers."""
    made_bytes: Floats
    """Codes written."""
    decoded: Ints
    added: Ints
    """Of the decoded numbers, those that are added to others; the rest is written over what was there."""
    read_bytes: Floats
    """Codes read."""
    own_bytes: Floats
    """Of these, the device's own."""

    @property
    def works(self) -> NDArray[np.bool_]:
        """Which have something to do."""
        return np.asarray(self.encoded + self.decoded > 0)

    def tiled(self, count: int) -> "Coding":
        """The same so many times, one after another."""
        return Coding(**{field.name: np.tile(getattr(self, field.name), count) for field in fields(self)})

    def take(self, keep: Ints | NDArray[np.bool_]) -> "Coding":
        """Some of them, in the given order."""
        return Coding(**{field.name: getattr(self, field.name)[keep] for field in fields(self)})


def encoding_of(kind: Compression, source: Ints, regions: Pieces) -> tuple[Ints, Coding]:
    """What devices encode that send regions: every region once, to however many devices it goes.

    Args:
        kind: The data type.
        source: Shape (K,): device that sends each region.
        regions: What is sent.

    Returns:
        The devices, sorted, and the work of each.
    """
    distinct = np.unique(np.column_stack([source, regions.low, regions.high]), axis=0)
    dims = regions.low.shape[1]
    low, high = distinct[:, 1 : 1 + dims], distinct[:, 1 + dims :]
    devices, numbers, size = _totals(kind, distinct[:, 0], (high - low).prod(axis=1))
    none, nothing = np.zeros_like(numbers), np.zeros_like(size)
    return devices, Coding(
        encoded=numbers, made_bytes=size, decoded=none, added=none, read_bytes=nothing, own_bytes=nothing
    )


def decoding_of(kind: Compression, target: Ints, regions: Pieces) -> tuple[Ints, Coding]:
    """What devices decode that receive regions; as for ``encoding_of``."""
    devices, numbers, size = _totals(kind, target, (regions.high - regions.low).prod(axis=1))
    none, nothing = np.zeros_like(numbers), np.zeros_like(size)
    return devices, Coding(
        encoded=none, made_bytes=nothing, decoded=numbers, added=none, read_bytes=size, own_bytes=nothing
    )


def _totals(kind: Compression, device: Ints, elements: Ints) -> tuple[Ints, Ints, Floats]:
    """Devices, and of each the numbers in its messages and the size of their codes."""
    devices, row = np.unique(device, return_inverse=True)
    numbers, size = np.zeros(len(devices), dtype=np.int64), np.zeros(len(devices))
    np.add.at(numbers, row, elements)
    np.add.at(size, row, kind.encoded_bytes(elements))
    return devices, numbers, size


def coding_s(model: CostModel, kind: Compression, devices: Ints, coding: Coding) -> Floats:
    """Seconds that each device takes for its work, alone.

    To encode is one pass over the numbers for the largest magnitude (which also finds what is not finite), and one
    that reads them again and writes codes; where a residual is kept, that pass also reads and writes it.  To decode
    is a pass that reads codes and writes numbers, and reads what they are added to.  Both only stream memory.  A
    profile that holds measured times of the type (``MEASURED``) replaces that: the nearest measured size, in the
    logarithm, scaled by the ratio of what streaming takes.

    Args:
        model: Profiles of the cluster's devices, and the size of numbers.
        kind: The data type.
        devices: Shape (K,).
        coding: Their work, shape (K,).

    Returns:
        Shape (K,); 0 where there is nothing to do.
    """
    if not len(devices):
        return np.zeros(0)
    rows = [_on(profile, kind, coding, model.graph.element_bytes) for profile in model.profiles]
    return np.asarray(np.column_stack(rows)[np.arange(len(devices)), model.profile_of[devices]])


def _on(profile: ComputeProfile, kind: Compression, coding: Coding, element_bytes: int) -> Floats:
    numbers, decoded = element_bytes * coding.encoded, element_bytes * (coding.decoded + coding.added)
    encode_s = _encode_s(profile, kind, numbers, coding.made_bytes)
    decode_s = _streaming_s(profile, decoded + coding.read_bytes)
    encode_s *= _measured_ratio(profile, kind, "compress", coding.encoded, element_bytes)
    decode_s *= _measured_ratio(profile, kind, "decompress", coding.decoded, element_bytes)
    return encode_s + decode_s


def _encode_s(profile: ComputeProfile, kind: Compression, numbers_bytes: Ints, made_bytes: Floats) -> Floats:
    passes = 3 if kind.feedback else 1
    return _streaming_s(profile, passes * numbers_bytes + made_bytes, numbers_bytes)


def _streaming_s(profile: ComputeProfile, moved_bytes: Floats, before_bytes: Ints | float = 0.0) -> Floats:
    none = np.zeros(len(moved_bytes))
    return profile.time_s(
        Kernels(
            flop=none, memory_bytes=moved_bytes, rows=none, columns=none, depth=none, samples=none,
            streamed_bytes=np.asarray(before_bytes, dtype=np.float64),
        )
    )  # fmt: skip


def _measured_ratio(
    profile: ComputeProfile, kind: Compression, task: str, elements: Ints, element_bytes: int
) -> Floats:
    """Measured by streaming time of the nearest measured message; 1 where there is none."""
    measured = profile.measured_parts(MEASURED, kind.text, task, ())
    if measured is None:
        return np.ones(len(elements))
    known = np.array(measured.sizes, dtype=np.int64)[:, 0]
    codes = np.asarray(kind.encoded_bytes(known), dtype=np.float64)
    if task == "compress":
        streaming_s = _encode_s(profile, kind, element_bytes * known, codes)
    else:
        streaming_s = _streaming_s(profile, element_bytes * known + codes)
    distance = np.abs(np.subtract.outer(np.log(np.maximum(elements, 1)), np.log(known)))
    return np.asarray((np.array(measured.time_s) / streaming_s)[distance.argmin(axis=1)])
