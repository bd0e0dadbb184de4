"""Work of compressing and decompressing messages, and the time that devices take for it."""

from dataclasses import dataclass, fields

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from hwprofiles.compute.compute_profile import CODEC_TARGETS, CODEC_TASKS, ComputeProfile
from hwprofiles.compute.kernels import Kernels
from planner.compression.data_types import Compression
from planner.cost.cost_model import CostModel
from planner.layouts.regions import TransferRegions

GRADIENTS, ACTIVATIONS = CODEC_TARGETS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CodecWork:
    """Work of devices that compress and decompress in one task each; arrays of one shape."""

    compressed_messages: Ints
    """Messages that the device compresses."""
    compressed_elements: Ints
    """Elements in these messages."""
    compressed_bytes: Floats
    """Bytes of these messages once they are compressed."""
    decompressed_messages: Ints
    """Messages that the device decompresses, all of one size where some of them are added."""
    decompressed_elements: Ints
    """Elements in these messages."""
    added_elements: Ints
    """Share of the decompressed elements that is added to others; the rest overwrites what was there."""
    decompressed_bytes: Floats
    """Bytes of the compressed messages that the device reads."""
    own_bytes: Floats
    """Share of these bytes that the device compressed itself."""

    @property
    def works(self) -> Bools:
        """Devices that have something to do."""
        return np.asarray(self.compressed_elements + self.decompressed_elements > 0)

    def tiled(self, count: int) -> "CodecWork":
        """Return the same work ``count`` times, one after another."""
        return CodecWork(**{field.name: np.tile(getattr(self, field.name), count) for field in fields(self)})

    def take(self, keep: Ints | Bools) -> "CodecWork":
        """Return the work of some devices: indices in the order wanted, or a mask."""
        return CodecWork(**{field.name: getattr(self, field.name)[keep] for field in fields(self)})


def compression_of(kind: Compression, source: Ints, regions: TransferRegions) -> tuple[Ints, CodecWork]:
    """Return the work of devices that send regions: each region is compressed once, for all its receivers.

    Args:
        kind: The data type.
        source: Shape (K,): sender of each region.
        regions: K regions.

    Returns:
        The devices, sorted, and the work of each.
    """
    distinct = np.unique(np.column_stack([source, regions.low, regions.high]), axis=0)
    dims = regions.low.shape[1]
    low, high = distinct[:, 1 : 1 + dims], distinct[:, 1 + dims :]
    devices, messages, elements, size = _totals(kind, distinct[:, 0], (high - low).prod(axis=1))
    none, nothing = np.zeros_like(elements), np.zeros_like(size)
    return devices, CodecWork(
        compressed_messages=messages,
        compressed_elements=elements,
        compressed_bytes=size,
        decompressed_messages=none,
        decompressed_elements=none,
        added_elements=none,
        decompressed_bytes=nothing,
        own_bytes=nothing,
    )


def decompression_of(kind: Compression, target: Ints, regions: TransferRegions) -> tuple[Ints, CodecWork]:
    """Return the work of devices that receive regions: each decompresses all that it receives.

    Args:
        kind: The data type.
        target: Shape (K,): receiver of each region.
        regions: K regions.

    Returns:
        The devices, sorted, and the work of each.
    """
    devices, messages, elements, size = _totals(kind, target, (regions.high - regions.low).prod(axis=1))
    none, nothing = np.zeros_like(elements), np.zeros_like(size)
    return devices, CodecWork(
        compressed_messages=none,
        compressed_elements=none,
        compressed_bytes=nothing,
        decompressed_messages=messages,
        decompressed_elements=elements,
        added_elements=none,
        decompressed_bytes=size,
        own_bytes=nothing,
    )


def _totals(kind: Compression, device: Ints, elements: Ints) -> tuple[Ints, Ints, Ints, Floats]:
    """Add up messages by device.

    Args:
        kind: The data type.
        device: Shape (K,).
        elements: Shape (K,): elements of each message.

    Returns:
        The devices, sorted; and of each the messages, their elements and their compressed bytes.
    """
    devices, row = np.unique(device, return_inverse=True)
    total, size = np.zeros(len(devices), dtype=np.int64), np.zeros(len(devices))
    np.add.at(total, row, elements)
    np.add.at(size, row, kind.compressed_bytes(elements))
    return devices, np.bincount(row, minlength=len(devices)), total, size


def codec_s(model: CostModel, kind: Compression, target: str, devices: Ints, work: CodecWork) -> Floats:
    """Compute the time that each device takes for its codec work, alone.

    A codec that the device's profile has measured takes a fixed time for each message, and a time for each element.
    Others stream memory.  Compression is then one pass over the elements for the largest magnitude (which also finds
    what is not finite), and one that reads them again and writes compressed bytes; where a residual is kept, that pass
    also reads and writes it.  Decompression is a pass that reads compressed bytes and writes elements, and reads what
    they are added to.

    Args:
        model: Profiles of the cluster's devices, and the size of elements.
        kind: The data type.
        target: ``GRADIENTS`` or ``ACTIVATIONS``.
        devices: Shape (K,).
        work: Their work, shape (K,).

    Returns:
        Seconds, shape (K,); 0 where there is nothing to do.
    """
    if not len(devices):
        return np.zeros(0)
    rows = [_profile_s(profile, kind, target, work, model.graph.element_bytes) for profile in model.profiles]
    return np.asarray(np.column_stack(rows)[np.arange(len(devices)), model.profile_of[devices]])


def _profile_s(profile: ComputeProfile, kind: Compression, target: str, work: CodecWork, element_bytes: int) -> Floats:
    """Compute the time of work on devices of one profile, shape (K,)."""
    compress, decompress, add = (profile.codecs.get((kind.text, target, task)) for task in CODEC_TASKS)
    if compress is None:
        compress_s = _compress_s(profile, kind, element_bytes * work.compressed_elements, work.compressed_bytes)
    else:
        compress_s = compress.time_s(work.compressed_messages, work.compressed_elements)
    if decompress is None or (add is None and work.added_elements.any()):
        element_traffic = element_bytes * (work.decompressed_elements + work.added_elements)
        return compress_s + _streaming_s(profile, element_traffic + work.decompressed_bytes)
    if add is None:
        return compress_s + decompress.time_s(work.decompressed_messages, work.decompressed_elements)
    # messages are of one size: the share of elements that are added is also that of messages
    share = work.decompressed_messages * work.added_elements / np.maximum(work.decompressed_elements, 1)
    added = np.round(share).astype(np.int64)
    overwrite_s = decompress.time_s(
        work.decompressed_messages - added, work.decompressed_elements - work.added_elements
    )
    return np.asarray(compress_s + overwrite_s + add.time_s(added, work.added_elements))


def _compress_s(profile: ComputeProfile, kind: Compression, element_traffic: Ints, compressed_bytes: Floats) -> Floats:
    """Compute the time to compress elements of so many bytes by streaming memory, shape (K,)."""
    passes = 3 if kind.feedback else 1
    return _streaming_s(profile, passes * element_traffic + compressed_bytes, element_traffic)


def _streaming_s(profile: ComputeProfile, moved_bytes: Floats, before_bytes: Ints | float = 0.0) -> Floats:
    """Compute the time to stream memory, shape (K,).

    Args:
        profile: The device's compute profile.
        moved_bytes: Shape (K,): bytes of the kernel's own pass.
        before_bytes: Shape (K,), or one for all: bytes of the pass before it.
    """
    none = np.zeros(len(moved_bytes))
    return profile.time_s(
        Kernels(
            flop=none,
            memory_bytes=moved_bytes,
            rows=none,
            columns=none,
            depth=none,
            samples=none,
            streamed_bytes=np.asarray(before_bytes, dtype=np.float64),
        )
    )
