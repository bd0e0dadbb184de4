"""Closed form for many machines on InfiniBand: every machine gathers the sub-batches.

All arguments broadcast: sub-batches and links may be arrays of any shapes that fit together.

Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Appendix A.2.
"""

import numpy as np

from groundwork.array_types import Floats
from studies.eight_bit.paper_tables import DEVICES_PER_MACHINE

COMPRESS_S, DECOMPRESS_S = 1.0e-9, 0.5e-9
"""Times of an element in 8 bits on a GTX Titan (Sec. 3.2).  The paper's tables for clusters leave them out."""
_PCIE_BYTES_PER_S = 5e9
"""Bandwidth inside a machine, whose devices have equal shares of a message (Appendix A.2.2)."""
_Number = float | Floats


def single_pass_s(size_bytes: _Number, latency_s: _Number, bytes_per_s: _Number, machines: int) -> Floats:
    """Return the time of a machine's messages to the n - 1 others, one after another, each with its latency.

    Args:
        size_bytes: One message.
        latency_s: Latency of a message between machines.
        bytes_per_s: Bandwidth between machines.
        machines: Number n of machines.

    Source: Dettmers, "8-Bit Approximations ...", Table 6, single pass.
    """
    return np.asarray((machines - 1) * (latency_s + np.asarray(size_bytes) / bytes_per_s))


def gradient_sync_s(size_bytes: _Number, latency_s: _Number, machines: int, *, bytes_per_s: _Number = np.inf) -> Floats:
    """Return the time of gradient synchronisation: the parts of a gradient to all machines, then their sums.

    The text lists 2 PCIe messages and n - 1 InfiniBand messages at 6 GB/s with their latency, twice: 3.0 ms for
    108 KiB and 32 machines.  Its 1.9 ms is that without the time on the links between machines, hence the default.

    Args:
        size_bytes: One n-th of the gradient.
        latency_s: Latency of a message between machines.
        machines: Number n of machines.
        bytes_per_s: Bandwidth between machines.

    Source: Dettmers, "8-Bit Approximations ...", Appendix A.2.2.
    """
    pcie_s = 2 * np.asarray(size_bytes) / DEVICES_PER_MACHINE / _PCIE_BYTES_PER_S
    return np.asarray(2 * (pcie_s + single_pass_s(size_bytes, latency_s, bytes_per_s, machines)))


def exposed_s(pass_s: _Number, product_s: float, machines: int) -> Floats:
    """Return the transfers of an iteration that nothing hides, as Table 6 prints them.

    Of n - 1 single passes each exposes what exceeds the product that hides it; where the product hides all of a pass,
    one whole pass is exposed.  The factor n - 1 is that of the machines, once more than in the single pass, and not the
    number of sub-batches, which is 96 to 1.  For the largest 32-bit pass, 250 ms, nothing is printed as hidden:
    31 x 250 ms.

    Args:
        pass_s: Time of a single pass.
        product_s: Time of the first linear layer's forward product.
        machines: Number n of machines.

    Source: Dettmers, "8-Bit Approximations ...", Table 6, full pass with overlap.
    """
    single = np.asarray(pass_s, dtype=np.float64)
    return np.where(single > product_s, (machines - 1) * (single - product_s), single)


def scheme_exposed_s(pass_s: _Number, linear_s: float, passes: _Number) -> Floats:
    """Return the transfers of an iteration that nothing hides in the schedule of Sec. 2.4.

    Of k sub-batches the first one's pass is exposed, and of the others' passes the time that exceeds the linear layers'
    forward and backward pass for the previous sub-batch.

    Args:
        pass_s: Time of a single pass.
        linear_s: Time of the linear layers for one sub-batch.
        passes: Number k of sub-batches.

    Source: Dettmers, "8-Bit Approximations ...", Sec. 2.4.
    """
    single = np.asarray(pass_s, dtype=np.float64)
    return np.asarray(single + (np.asarray(passes) - 1) * np.maximum(0.0, single - linear_s))
