"""The closed form for many machines on InfiniBand (Appendix A.2): sub-batches gathered by every machine.

Everything broadcasts: sub-batches, devices and links may be arrays of any shapes that fit together.
"""

from dataclasses import dataclass, fields
from enum import StrEnum

import numpy as np

from hwprofiles import ConfigError, Floats
from hwprofiles.devices import Latency
from studies.eight_bit.number_cost import NumberCost

__all__ = [
    "Interpretation",
    "Setting",
    "SubBatchTimes",
    "Workload",
    "exposed_s",
    "gradient_sync_s",
    "single_pass_s",
    "sub_batch_times",
]

_Number = float | Floats


class Interpretation(StrEnum):
    """Which transfers arithmetic hides.  The paper's tables and its text do not agree."""

    TABLE_6 = "table-6"
    """As printed: n - 1 single passes, each less the product that hides it; one whole pass if that hides all of it."""
    IN_TURN = "in-turn"
    """A schedule near it that can be run: n machines distribute in turn, the first one's pass is exposed, of the
    others' what exceeds the product."""
    SCHEME = "scheme"
    """As Sec. 2.4 says: of k sub-batches the first one's pass is exposed, of the others' what exceeds the linear
    layers' forward and backward of the sub-batch before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A network on one device, and what sub-batches take of it to its linear layers."""

    whole_s: _Number
    """Forward, backward and updates of a device's own mini-batch."""
    linear_s: _Number
    """The linear layers of one sub-batch; the paper takes that of a device's own mini-batch, whatever the sub-batch."""
    own_linear_s: _Number
    """The part of ``whole_s`` that is linear layers."""
    product_s: _Number
    """The first linear layer's forward product, which hides a transfer in Table 6."""
    gradient_s: _Number
    """Exchange of the last gradient of the convolutions."""
    features: _Number
    """Numbers that a sample brings to the linear layers."""
    samples: _Number
    """A device's own mini-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Machines, links, and the sub-batch."""

    sub_batch: _Number
    """Samples."""
    machines: _Number
    """n >= 2."""
    devices_per_machine: _Number
    bytes_per_s: _Number
    """Between machines, one direction."""
    latency: Latency
    """Of one message between machines."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SubBatchTimes:
    """Times of one iteration, in seconds; all of one shape."""

    passes: Floats
    """k: sub-batches of the whole mini-batch."""
    message_bytes: Floats
    single_pass_s: Floats
    """A machine sends its part of a sub-batch to every other."""
    linear_s: Floats
    """k passes of the linear layers ("forward time" in Table 6)."""
    exposed_s: Floats
    """Transfers that nothing hides ("full pass with overlap")."""
    coding_s: Floats
    """Encoding and decoding, on the devices, hidden by nothing."""
    iteration_s: Floats
    speedup: Floats
    """Over one device that trains as many samples."""


def single_pass_s(size_bytes: _Number, latency_s: _Number, bytes_per_s: _Number, machines: _Number) -> Floats:
    """A machine's messages to the n - 1 others, one after another, each with its latency (Table 6, single pass)."""
    return np.asarray((np.asarray(machines) - 1) * (latency_s + np.asarray(size_bytes) / bytes_per_s))


def gradient_sync_s(
    size_bytes: _Number, latency_s: _Number, machines: _Number, *,
    devices_per_machine: _Number = 3, pcie_bytes_per_s: _Number = 5e9, bytes_per_s: _Number = np.inf,
) -> Floats:  # fmt: skip
    """Parts of a gradient to everyone, then their sums (A.2.2).

    The text lists 2 PCIe messages and n - 1 InfiniBand messages at 6 GB/s with their latency, twice: 3.0 ms for
    108 KiB and 32 machines.  Its 1.9 ms is that without the time on the links between machines, hence the default.

    Args:
        size_bytes: An n-th of the gradient.
        latency_s: Of a message between machines.
        machines: Machines n.
        devices_per_machine: Each holds such a part of the message on its way over PCIe.
        pcie_bytes_per_s: Within a machine.
        bytes_per_s: Between machines.
    """
    pcie_s = 2 * np.asarray(size_bytes) / devices_per_machine / pcie_bytes_per_s
    return np.asarray(2 * (pcie_s + single_pass_s(size_bytes, latency_s, bytes_per_s, machines)))


def exposed_s(
    pass_s: _Number, *, machines: _Number, passes: _Number, product_s: _Number, linear_s: _Number,
    reading: Interpretation = Interpretation.TABLE_6,
) -> Floats:  # fmt: skip
    """Transfers of an iteration that nothing hides.

    Table 6's factor n - 1 is that of the machines, once more than in the single pass, and not the number of
    sub-batches, which is 96 to 1.  For its largest 32-bit pass, 250 ms, nothing is printed as hidden: 31 x 250 ms.

    Args:
        pass_s: A single pass.
        machines: Machines n.
        passes: Sub-batches k.
        product_s: What hides a pass in Table 6.
        linear_s: What hides a pass in Sec. 2.4.
        reading: Which of them.
    """
    single = np.asarray(pass_s, dtype=np.float64)
    if reading is Interpretation.SCHEME:
        return np.asarray(single + (np.asarray(passes) - 1) * np.maximum(0.0, single - linear_s))
    others = (np.asarray(machines) - 1) * np.maximum(0.0, single - product_s)
    return single + others if reading is Interpretation.IN_TURN else np.where(single > product_s, others, single)


def sub_batch_times(
    workload: Workload, setting: Setting, coding: NumberCost, reading: Interpretation = Interpretation.TABLE_6
) -> SubBatchTimes:
    """The iteration in sub-batches and its speedup (Tables 6 and 7).

    A machine's message is its n-th of the sub-batch's inputs to the linear layers.  Errors on their way back are not
    counted, as in the paper.  Every device encodes its own share of a sub-batch once and decodes all others'.

    Raises:
        ConfigError: A value is not > 0, there are fewer than 2 machines, or a sub-batch is larger than the
            mini-batch.
    """
    _check(workload, setting)
    machines, devices = np.asarray(setting.machines), np.multiply(setting.machines, setting.devices_per_machine)
    passes = np.asarray(devices * workload.samples / setting.sub_batch, dtype=np.float64)
    if np.any(passes < 1):
        raise ConfigError(f"sub_batch must be at most the mini-batch's samples, got {setting.sub_batch}")
    numbers = np.multiply(setting.sub_batch, workload.features)
    size = np.asarray(numbers * coding.element_bytes / machines, dtype=np.float64)
    single = single_pass_s(size, setting.latency.at(size), setting.bytes_per_s, machines)
    exposed = exposed_s(
        single, machines=machines, passes=passes, product_s=workload.product_s, linear_s=workload.linear_s,
        reading=reading,
    )  # fmt: skip
    linear = passes * workload.linear_s
    coded = passes * numbers / devices * (coding.encode_s + (devices - 1) * coding.decode_s)
    iteration = np.subtract(workload.whole_s, workload.own_linear_s) + workload.gradient_s + linear + exposed + coded
    speedup = devices * workload.whole_s / iteration
    columns = np.broadcast_arrays(passes, size, single, linear, exposed, coded, iteration, speedup)
    return SubBatchTimes(**{field.name: column for field, column in zip(fields(SubBatchTimes), columns, strict=True)})


def _check(workload: Workload, setting: Setting) -> None:
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
