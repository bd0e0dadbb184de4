"""Closed form for many machines on InfiniBand: every machine gathers the sub-batches.

All arguments broadcast: sub-batches, devices and links may be arrays of any shapes that fit together.

Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Appendix A.2.
"""

import math
from dataclasses import dataclass, fields
from enum import StrEnum

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from hwprofiles.devices.latency import Latency


@dataclass(frozen=True, slots=True)
class ElementCost:
    """Cost of an element of one data type."""

    name: str
    element_bytes: float
    """Bytes of one element; a fraction where several share a byte."""
    compress_s: float = 0.0
    decompress_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.element_bytes < math.inf:
            raise ConfigError(f"element_bytes of {self.name} must be > 0, got {self.element_bytes}")
        if not (0 <= self.compress_s < math.inf and 0 <= self.decompress_s < math.inf):
            raise ConfigError(
                f"compress_s and decompress_s of {self.name} must be >= 0, "
                f"got {self.compress_s} and {self.decompress_s}"
            )


FLOAT32_COST = ElementCost("32-bit", 4.0)
"""Data type in which the network computes."""
EIGHT_BIT_COST = ElementCost("8-bit", 1.0, 1.0e-9, 0.5e-9)
"""Times on a GTX Titan (Sec. 3.2).  The paper's tables for clusters leave them out."""


_Number = float | Floats


class Interpretation(StrEnum):
    """Interpretation of the transfers that computation hides.  The paper's tables and its text do not agree."""

    TABLE_6 = "table-6"
    """Formula that the printed values follow: n - 1 single passes are exposed, each less the product that hides it; or
    one whole pass, where the product hides all of a pass."""
    IN_TURN = "in-turn"
    """The schedule next to it that can be run: n machines send in turn; the first machine's pass is exposed, and of the
    others' passes the time that exceeds the product."""
    SCHEME = "scheme"
    """Schedule of Sec. 2.4: of k sub-batches the first one's pass is exposed, and of the others' passes the time that
    exceeds the linear layers' forward and backward pass for the previous sub-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A network on one device, and the inputs of its linear layers."""

    whole_s: _Number
    """Time of forward pass, backward pass and updates of a device's own mini-batch."""
    linear_s: _Number
    """Time of the linear layers for one sub-batch; the paper takes that of a device's own mini-batch, whatever the
    sub-batch."""
    own_linear_s: _Number
    """Time of the linear layers within ``whole_s``."""
    product_s: _Number
    """Time of the first linear layer's forward product, which hides a transfer in Table 6."""
    gradient_s: _Number
    """Synchronisation of the last gradient of the convolutions."""
    features: _Number
    samples: _Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Machines, links, and the sub-batch."""

    sub_batch: _Number
    machines: _Number
    """Number n of machines, >= 2."""
    devices_per_machine: _Number
    bytes_per_s: _Number
    latency: Latency


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SubBatchTimes:
    """Times of one iteration, in seconds; all of one shape."""

    passes: Floats
    message_bytes: Floats
    single_pass_s: Floats
    """Time in which a machine sends its part of a sub-batch to every other."""
    linear_s: Floats
    """Time of k passes of the linear layers ("forward time" in Table 6)."""
    exposed_s: Floats
    """Transfers that nothing hides ("full pass with overlap")."""
    codec_s: Floats
    """Time to compress and decompress on the devices, which nothing hides."""
    iteration_s: Floats
    speedup: Floats
    """Speedup over one device that trains as many samples."""


def single_pass_s(size_bytes: _Number, latency_s: _Number, bytes_per_s: _Number, machines: _Number) -> Floats:
    """Return the time of a machine's messages to the n - 1 others, one after another, each with its latency.

    Args:
        size_bytes: One message.
        latency_s: Latency of a message between machines.
        bytes_per_s: Bandwidth between machines.
        machines: Number n of machines.

    Source: Dettmers, "8-Bit Approximations ...", Table 6, single pass.
    """
    return np.asarray((np.asarray(machines) - 1) * (latency_s + np.asarray(size_bytes) / bytes_per_s))


def gradient_sync_s(
    size_bytes: _Number,
    latency_s: _Number,
    machines: _Number,
    *,
    devices_per_machine: _Number = 3,
    pcie_bytes_per_s: _Number = 5e9,
    bytes_per_s: _Number = np.inf,
) -> Floats:
    """Return the time of gradient synchronisation: the parts of a gradient to all machines, then their sums.

    The text lists 2 PCIe messages and n - 1 InfiniBand messages at 6 GB/s with their latency, twice: 3.0 ms for
    108 KiB and 32 machines.  Its 1.9 ms is that without the time on the links between machines, hence the default.

    Args:
        size_bytes: One n-th of the gradient.
        latency_s: Latency of a message between machines.
        machines: Number n of machines.
        devices_per_machine: Devices of a machine; each has its share of a message over PCIe.
        pcie_bytes_per_s: Bandwidth inside a machine.
        bytes_per_s: Bandwidth between machines.

    Source: Dettmers, "8-Bit Approximations ...", Appendix A.2.2.
    """
    pcie_s = 2 * np.asarray(size_bytes) / devices_per_machine / pcie_bytes_per_s
    return np.asarray(2 * (pcie_s + single_pass_s(size_bytes, latency_s, bytes_per_s, machines)))


def exposed_s(
    pass_s: _Number,
    *,
    machines: _Number,
    passes: _Number,
    product_s: _Number,
    linear_s: _Number,
    interpretation: Interpretation = Interpretation.TABLE_6,
) -> Floats:
    """Return the transfers of an iteration that nothing hides.

    Table 6's factor n - 1 is that of the machines, once more than in the single pass, and not the number of
    sub-batches, which is 96 to 1.  For its largest 32-bit pass, 250 ms, nothing is printed as hidden: 31 x 250 ms.

    Args:
        pass_s: Time of a single pass.
        machines: Number n of machines.
        passes: Number k of sub-batches.
        product_s: Computation that hides a pass in Table 6.
        linear_s: Computation that hides a pass in Sec. 2.4.
        interpretation: Which of them hides a pass.

    Source: Dettmers, "8-Bit Approximations ...", Sec. 2.4, and Table 6, full pass with overlap.
    """
    single = np.asarray(pass_s, dtype=np.float64)
    if interpretation is Interpretation.SCHEME:
        return np.asarray(single + (np.asarray(passes) - 1) * np.maximum(0.0, single - linear_s))
    others = (np.asarray(machines) - 1) * np.maximum(0.0, single - product_s)
    return single + others if interpretation is Interpretation.IN_TURN else np.where(single > product_s, others, single)


def sub_batch_times(
    workload: Workload,
    setting: Setting,
    element_cost: ElementCost,
    interpretation: Interpretation = Interpretation.TABLE_6,
) -> SubBatchTimes:
    """Return the times of an iteration in sub-batches, and its speedup.

    A machine's message is its n-th of the sub-batch's inputs to the linear layers.  Errors in the backward pass are not
    counted, as in the paper.  Every device compresses its own share of a sub-batch once and decompresses all others'.

    Raises:
        ConfigError: A value is not > 0, there are fewer than 2 machines, or a sub-batch is larger than the
            mini-batch.

    Source: Dettmers, "8-Bit Approximations ...", Tables 6 and 7.
    """
    _check(workload, setting)
    machines, devices = np.asarray(setting.machines), np.multiply(setting.machines, setting.devices_per_machine)
    passes = np.asarray(devices * workload.samples / setting.sub_batch, dtype=np.float64)
    if np.any(passes < 1):
        raise ConfigError(f"sub_batch must be at most the mini-batch's samples, got {setting.sub_batch}")
    elements = np.multiply(setting.sub_batch, workload.features)
    size = np.asarray(elements * element_cost.element_bytes / machines, dtype=np.float64)
    single = single_pass_s(size, setting.latency.at(size), setting.bytes_per_s, machines)
    exposed = exposed_s(
        single,
        machines=machines,
        passes=passes,
        product_s=workload.product_s,
        linear_s=workload.linear_s,
        interpretation=interpretation,
    )
    linear = passes * workload.linear_s
    codec = passes * elements / devices * (element_cost.compress_s + (devices - 1) * element_cost.decompress_s)
    iteration = np.subtract(workload.whole_s, workload.own_linear_s) + workload.gradient_s + linear + exposed + codec
    speedup = devices * workload.whole_s / iteration
    columns = np.broadcast_arrays(passes, size, single, linear, exposed, codec, iteration, speedup)
    return SubBatchTimes(**{field.name: column for field, column in zip(fields(SubBatchTimes), columns, strict=True)})


def _check(workload: Workload, setting: Setting) -> None:
    """Refuse values that are not positive, and a single machine."""
    for part in (workload, setting):
        for field in fields(part):
            value = getattr(part, field.name)
            if isinstance(value, Latency):
                continue
            free = field.name in ("gradient_s", "product_s")
            if not np.all(np.isfinite(value)) or np.any(np.less(value, 0) if free else np.less_equal(value, 0)):
                raise ConfigError(f"{field.name} must be {'>= 0' if free else '> 0'} and finite, got {value}")
    if np.any(np.less(setting.machines, 2)):
        raise ConfigError(f"machines must be >= 2, got {setting.machines}")
