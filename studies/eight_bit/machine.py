"""Closed form for one machine whose devices are attached in pairs to PCIe switches.

Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Appendix A.1.
"""

from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Floats

PCIE_BYTES_PER_S = 5.25e9
"""Bandwidth for large messages (A.1.1).  With sizes in MiB it gives the times that the paper gets from MB and its
"about 5 GB/s"."""
_DEVICES = 4
"""Devices of the machine of Appendix A.1, and sub-batches of its mini-batch."""


def machine_sync_s(
    size_bytes: float | Floats, *, devices: int = _DEVICES, bytes_per_s: float | Floats = PCIE_BYTES_PER_S
) -> Floats:
    """Return the time in which every device sends a buffer to every other.

    A switch lets one message of its pair out at a time, and each of the 2 devices has p - 2 for other pairs: with 4
    devices that is the time of 4 messages.  Messages within a pair hide behind them.

    Args:
        size_bytes: Buffer of each device.  For gradients it is a p-th of them, and there are two such steps: the
            parts, then their sums.  A.1.1 does not say so, but the times of Table 3 are those of 8 messages, and
            A.2.2 has two steps.
        devices: Devices p of the machine, >= 2.
        bytes_per_s: Bandwidth of a switch's port, broadcast with ``size_bytes``.

    Source: Dettmers, "8-Bit Approximations ...", Sec. 2.3.1, and Table 3, sync time.
    """
    return np.asarray(max(1, 2 * (devices - 2)) * np.asarray(size_bytes) / bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearLayers:
    """T linear layers that are split over the devices of a machine, with their transfers.

    Shapes may have leading axes, for instance one for data types.
    """

    alone_s: float
    """Time of forward pass, backward pass and updates of a whole mini-batch on one device."""
    parallel_s: float
    """The same time for one sub-batch, on each device's share of the layers."""
    forward_s: Floats
    """Forward pass of one sub-batch on each device's share, shape (T,)."""
    input_sync_s: Floats
    """Transfer of a sub-batch's inputs from the convolutions, or of its errors in the backward pass, shape (...)."""
    output_sync_s: Floats
    """Transfer of each layer's activations, shape (..., T)."""


def machine_penalty_s(layers: LinearLayers, gradient_s: float) -> Floats:
    """Return the transfers of an iteration that nothing hides, shape (...).

    The expression of A.1.2 is lost.  The sentences around it name the last gradient of the convolutions; the
    first sub-batch's inputs and the last one's errors, which have nothing to overlap with; and, of every transfer in
    between, the time that exceeds the forward pass of its layer on another sub-batch.  In the backward pass transfers
    hide behind updates too, and cost nothing.

    Args:
        layers: The split layers.
        gradient_s: Synchronisation of the gradient of the first convolution, whose backward pass comes last.

    Source: Dettmers, "8-Bit Approximations ...", Appendix A.1.2.
    """
    inputs = np.maximum(0.0, layers.input_sync_s - layers.forward_s[0])
    outputs = np.maximum(0.0, layers.output_sync_s - layers.forward_s).sum(axis=-1)
    return np.asarray(gradient_s + 2 * layers.input_sync_s + (_DEVICES - 1) * inputs + _DEVICES * outputs)


def machine_speedup(whole_s: float, layers: LinearLayers, gradient_s: float) -> Floats:
    """Return the speedup over one device, shape (...).

    The printed expression is lost.  The text says that the split saves 3.16 ms, 6.5 - 3.34, as if there was one pass;
    the printed speedups need p passes of 3.34 ms.

    Args:
        whole_s: Iteration of one device.
        layers: The split layers.
        gradient_s: Synchronisation of the gradient of the first convolution.

    Source: Dettmers, "8-Bit Approximations ...", Appendix A.1.3 and Table 1.
    """
    convolutions_s = whole_s - layers.alone_s
    penalty_s = machine_penalty_s(layers, gradient_s)
    return np.asarray(_DEVICES * whole_s / (convolutions_s + _DEVICES * layers.parallel_s + penalty_s))
