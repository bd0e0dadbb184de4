"""The closed form for one machine whose devices sit in pairs on PCIe switches (Appendix A.1)."""

from dataclasses import dataclass

import numpy as np

from hwprofiles import ConfigError, Floats

__all__ = ["PCIE_BYTES_PER_S", "LinearLayers", "machine_penalty_s", "machine_speedup", "machine_sync_s"]


PCIE_BYTES_PER_S = 5.25e9
"""Where the bandwidth saturates (A.1.1).  With sizes in MiB it gives the times that the paper gets from MB and its
"about 5 GB/s"."""


def machine_sync_s(
    size_bytes: float | Floats, *, devices: int = 4, bytes_per_s: float | Floats = PCIE_BYTES_PER_S
) -> Floats:
    """Everyone sends a buffer to every other (Table 3, sync time).

    A switch lets one message of its pair out at a time (Sec. 2.3.1), and 2 devices each have p - 2 for others: with 4
    devices the time of 4 messages.  Messages within a pair hide behind them.

    Args:
        size_bytes: Buffer of each device.  For gradients it is a p-th of them, and they are exchanged twice: the
            parts, then their sums.  A.1.1 does not say so, but the times of Table 3 are those of 8 messages, and
            A.2.2 exchanges twice.
        devices: Devices p of the machine, >= 2.
        bytes_per_s: Bandwidth of a switch's port, broadcast with ``size_bytes``.

    Raises:
        ConfigError: Fewer than 2 devices.
    """
    if devices < 2:
        raise ConfigError(f"devices must be >= 2, got {devices}")
    return np.asarray(max(1, 2 * (devices - 2)) * np.asarray(size_bytes) / bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearLayers:
    """T linear layers that are split over the devices of a machine, and their exchanges.

    Shapes may have leading axes, for instance one for data types.
    """

    alone_s: float
    """Forward, backward and updates of a whole mini-batch on one device."""
    parallel_s: float
    """The same of one sub-batch, on each device's share of the layers."""
    forward_s: Floats
    """Shape (T,): forward of one sub-batch on each device's share."""
    input_sync_s: Floats
    """Shape (...): exchange of what a sub-batch brings from the convolutions, or of its errors on the way back."""
    output_sync_s: Floats
    """Shape (..., T): exchange of each layer's activations."""


def machine_penalty_s(layers: LinearLayers, gradient_s: float, *, devices: int = 4) -> Floats:
    """Transfers of an iteration that nothing hides, shape (...).

    The expression of A.1.2 is lost.  From the sentences around it: the last gradient of the convolutions; the
    first sub-batch's inputs and the last one's errors, which have nothing to overlap with; and of every transfer in
    between what exceeds the forward time of its layer, on another sub-batch, behind which it goes.  In the backward
    pass transfers hide behind updates too, and cost nothing.

    Args:
        layers: The split layers.
        gradient_s: Exchange of the gradient of the first convolution, whose backward comes last.
        devices: As many sub-batches are there.
    """
    inputs = np.maximum(0.0, layers.input_sync_s - layers.forward_s[0])
    outputs = np.maximum(0.0, layers.output_sync_s - layers.forward_s).sum(axis=-1)
    return np.asarray(gradient_s + 2 * layers.input_sync_s + (devices - 1) * inputs + devices * outputs)


def machine_speedup(whole_s: float, layers: LinearLayers, gradient_s: float, *, devices: int = 4) -> Floats:
    """Speedup over one device (Table 1, A.1.3), shape (...).

    The printed expression is lost.  The text says that the split saves 3.16 ms, 6.5 - 3.34, as if there was one pass;
    the printed speedups need p passes of 3.34 ms.

    Args:
        whole_s: Iteration of one device.
        layers: The split layers.
        gradient_s: See ``machine_penalty_s``.
        devices: Devices p, and sub-batches.
    """
    convolutions_s = whole_s - layers.alone_s
    penalty_s = machine_penalty_s(layers, gradient_s, devices=devices)
    return np.asarray(devices * whole_s / (convolutions_s + devices * layers.parallel_s + penalty_s))
