"""The work of encoding and decoding messages, and how long devices take for it."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Floats, Ints
from hwprofiles.compute import CODEC_TARGETS, CODEC_TASKS, ComputeProfile, Kernels
from planner.compression import Compression
from planner.cost.cost_model import CostModel
from planner.parallel import TransferRegions

__all__ = ["ACTIVATIONS", "GRADIENTS", "CodecWork", "codec_s", "compression_of", "decompression_of"]


GRADIENTS, ACTIVATIONS = CODEC_TARGETS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CodecWork:
    """What devices encode and decode in one task each, arrays of one shape."""

    made: Ints
    """Messages encoded."""
    encoded: Ints
    """Numbers in them."""
    compressed_bytes: Floats
    """Codes written."""
    read: Ints
    """Messages decoded, all of one size where some of them are added."""
    decoded: Ints
    """Numbers in them."""
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

    def tiled(self, count: int) -> "CodecWork":
        """The same so many times, one after another."""
        return CodecWork(**{field.name: np.tile(getattr(self, field.name), count) for field in fields(self)})

    def take(self, keep: Ints | NDArray[np.bool_]) -> "CodecWork":
        """Some of them, in the given order."""
        return CodecWork(**{field.name: getattr(self, field.name)[keep] for field in fields(self)})


def compression_of(kind: Compression, source: Ints, regions: TransferRegions) -> tuple[Ints, CodecWork]:
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
    devices, messages, numbers, size = _totals(kind, distinct[:, 0], (high - low).prod(axis=1))
    none, nothing = np.zeros_like(numbers), np.zeros_like(size)
    return devices, CodecWork(
        made=messages, encoded=numbers, compressed_bytes=size, read=none, decoded=none, added=none, read_bytes=nothing,
        own_bytes=nothing,
    )  # fmt: skip


def decompression_of(kind: Compression, target: Ints, regions: TransferRegions) -> tuple[Ints, CodecWork]:
    """What devices decode that receive regions; as for ``compression_of``."""
    devices, messages, numbers, size = _totals(kind, target, (regions.high - regions.low).prod(axis=1))
    none, nothing = np.zeros_like(numbers), np.zeros_like(size)
    return devices, CodecWork(
        made=none, encoded=none, compressed_bytes=nothing, read=messages, decoded=numbers, added=none, read_bytes=size,
        own_bytes=nothing,
    )  # fmt: skip


def _totals(kind: Compression, device: Ints, elements: Ints) -> tuple[Ints, Ints, Ints, Floats]:
    """Devices, and of each its messages, the numbers in them and the size of their codes."""
    devices, row = np.unique(device, return_inverse=True)
    numbers, size = np.zeros(len(devices), dtype=np.int64), np.zeros(len(devices))
    np.add.at(numbers, row, elements)
    np.add.at(size, row, kind.compressed_bytes(elements))
    return devices, np.bincount(row, minlength=len(devices)), numbers, size


def codec_s(model: CostModel, kind: Compression, place: str, devices: Ints, coding: CodecWork) -> Floats:
    """Seconds that each device takes for its work, alone.

    What the device's profile has measured of the type takes a fixed time for each message, and so much for every
    number.  Anything else streams memory.  To encode is then one pass over the numbers for the largest magnitude
    (which also finds what is not finite), and one that reads them again and writes codes; where a residual is kept,
    that pass also reads and writes it.  To decode is a pass that reads codes and writes numbers, and reads what they
    are added to.

    Args:
        model: Profiles of the cluster's devices, and the size of numbers.
        kind: The data type.
        place: ``GRADIENTS`` or ``ACTIVATIONS``.
        devices: Shape (K,).
        coding: Their work, shape (K,).

    Returns:
        Shape (K,); 0 where there is nothing to do.
    """
    if not len(devices):
        return np.zeros(0)
    rows = [_on(profile, kind, place, coding, model.graph.element_bytes) for profile in model.profiles]
    return np.asarray(np.column_stack(rows)[np.arange(len(devices)), model.profile_of[devices]])


def _on(profile: ComputeProfile, kind: Compression, place: str, coding: CodecWork, element_bytes: int) -> Floats:
    compress, decompress, summing = (profile.codecs.get((kind.text, place, task)) for task in CODEC_TASKS)
    if compress is None:
        encode_s = _encode_s(profile, kind, element_bytes * coding.encoded, coding.compressed_bytes)
    else:
        encode_s = compress.time_s(coding.made, coding.encoded)
    if decompress is None or (summing is None and coding.added.any()):
        numbers = element_bytes * (coding.decoded + coding.added)
        return encode_s + _streaming_s(profile, numbers + coding.read_bytes)
    if summing is None:
        return encode_s + decompress.time_s(coding.read, coding.decoded)
    sums = np.round(coding.read * coding.added / np.maximum(coding.decoded, 1)).astype(np.int64)
    written_s = decompress.time_s(coding.read - sums, coding.decoded - coding.added)
    return np.asarray(encode_s + written_s + summing.time_s(sums, coding.added))


def _encode_s(profile: ComputeProfile, kind: Compression, numbers_bytes: Ints, compressed_bytes: Floats) -> Floats:
    passes = 3 if kind.feedback else 1
    return _streaming_s(profile, passes * numbers_bytes + compressed_bytes, numbers_bytes)


def _streaming_s(profile: ComputeProfile, moved_bytes: Floats, before_bytes: Ints | float = 0.0) -> Floats:
    none = np.zeros(len(moved_bytes))
    return profile.time_s(
        Kernels(
            flop=none, memory_bytes=moved_bytes, rows=none, columns=none, depth=none, samples=none,
            streamed_bytes=np.asarray(before_bytes, dtype=np.float64),
        )
    )  # fmt: skip
