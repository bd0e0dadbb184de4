"""Table 1 of ParaDL as functions of arrays; all times are of one iteration, an epoch has D/B of them.

Symbols: D samples of the data set, B of a mini-batch, G layers, p devices, S segments of a pipeline; FW, BW and WU
times of a layer's forward pass, backward pass and update; |x|, |y|, |w|, |b| sizes of its input, output, weights and
bias; alpha the start-up time of a message, beta the inverse bandwidth, delta bytes of an element, gamma memory reuse.
The last axis of an array runs over layers, messages or stages; the axes before it, and the other arguments,
broadcast.  Alpha is given for every message, because the latency of a link may depend on the size.

Source:
    Kahira et al., "An Oracle for Guiding Large-Scale Model/Hybrid Parallel Training of Convolutional Neural
    Networks", Table 1.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Floats

_Values = NDArray[Any] | float


def _array(values: _Values) -> Floats:
    return np.asarray(values, dtype=np.float64)


def computation_s(forward_s: _Values, backward_s: _Values, update_s: _Values) -> Floats:
    """Return the computation of an iteration on one device: the sum of FW + BW + WU over the layers.

    Rows Serial to Data + Filter print D/p sum(FW + BW) + D/B sum(WU) for an epoch, with FW and BW of one sample.  A
    device's share of an iteration is FW + BW of B/p samples, in all rows, and WU, which is divided by p where it holds
    a p-th of the weights.

    Args:
        forward_s: FW of the device's share of each layer, shape (..., G).
        backward_s: BW of the device's share of each layer, shape (..., G).
        update_s: WU of the device's share of each layer, shape (..., G).

    Source: Kahira et al., "An Oracle ...", Table 1, all rows but Layer, computation.
    """
    return np.asarray((_array(forward_s) + backward_s + update_s).sum(axis=-1))


def pipeline_computation_s(forward_s: _Values, backward_s: _Values, update_s: _Values, segments: _Values) -> Floats:
    """Return the computation of a pipeline: (p + S - 1) (max FW_G + max BW_G) + max WU_G.

    The row prints max WU_G inside the bracket that D (p + S - 1) / S multiplies.  But WU is not a time of a sample, and
    all other rows multiply it by D/B, that is once an iteration, which is done here too.

    Args:
        forward_s: FW of each of the p stages for a micro-batch of B/S samples, shape (..., p).
        backward_s: BW of each stage, likewise.
        update_s: WU of each stage, shape (..., p).
        segments: Number S of micro-batches.

    Source: Kahira et al., "An Oracle ...", Table 1, row Layer, computation.
    """
    forward, backward, update = _array(forward_s), _array(backward_s), _array(update_s)
    steps = forward.shape[-1] + _array(segments) - 1
    return np.asarray(steps * (forward.max(axis=-1) + backward.max(axis=-1)) + update.max(axis=-1))


def gradient_all_reduce_s(p: _Values, message_bytes: _Values, alpha_s: _Values, beta: _Values) -> Floats:
    """Return the time of a ring all-reduce of gradients: 2 (p - 1) (alpha + sum |w| / p delta beta).

    With one message for all layers it is the row of the table; with a message for each layer, each has its own alpha.

    Args:
        p: Number of replicas, shape (...).
        message_bytes: |w| delta of every message, shape (..., M).
        alpha_s: Latency of a p-th of each message, shape (..., M).
        beta: Seconds per byte of a round, shape (...).

    Source: Kahira et al., "An Oracle ...", Table 1, row Data, communication.
    """
    rounds = 2 * (_array(p) - 1)
    size = _array(message_bytes) / _array(p)[..., None]
    return np.asarray(rounds * np.where(size > 0, _array(alpha_s) + size * _array(beta)[..., None], 0.0).sum(axis=-1))


def activation_collectives_s(
    p: _Values, tensor_bytes: _Values, alpha_s: _Values, beta: _Values, *, passes: int = 3
) -> Floats:
    """Return the time of the collectives of activations: 3 (p - 1) sum(alpha + B |y| / p delta beta) over tensors.

    Filter has an all-gather of y in the forward pass (p - 1 rounds) and an all-reduce of dL/dx in the backward pass
    (2 (p - 1) rounds); Channel has an all-reduce in the forward pass and an all-gather in the backward pass.  In
    Data + Filter p is p2, the devices of a group, and B the samples of a group; the row's ``p^2`` and ``p^1`` are p2
    and p1, printed as exponents.

    Args:
        p: Devices of a group, shape (...).
        tensor_bytes: B |y| delta of each tensor, shape (..., M).
        alpha_s: Latency of a p-th of each tensor, shape (..., M).
        beta: Seconds per byte of a round, shape (...).
        passes: Multiple of p - 1 rounds: 3 as printed; 2 where the backward pass reduces only the needed p-th.

    Source: Kahira et al., "An Oracle ...", Table 1, rows Filter, Channel and Data + Filter, communication.
    """
    size = _array(tensor_bytes) / _array(p)[..., None]
    each = np.where(size > 0, _array(alpha_s) + size * _array(beta)[..., None], 0.0)
    return np.asarray(passes * (_array(p) - 1) * each.sum(axis=-1))


def halo_exchange_s(halo_x_bytes: _Values, halo_dy_bytes: _Values, alpha_s: _Values, beta: _Values) -> Floats:
    """Return the time of the halo exchange: 2 sum(2 alpha + B (halo(x) + halo(dL/dy)) delta beta).

    This is taken to mean one message with each of 2 neighbours in the forward pass, halo(x), and one in the backward
    pass, halo(dL/dy).  A layer whose windows do not reach over the edge of a part sends none.

    Args:
        halo_x_bytes: B halo(x) delta of a layer for one neighbour, shape (..., G).
        halo_dy_bytes: B halo(dL/dy) delta, likewise.
        alpha_s: Latency of a message of each layer, shape (..., G).
        beta: Seconds per byte, with one neighbour after the other, shape (...).

    Source: Kahira et al., "An Oracle ...", Table 1, row Spatial, communication.
    """
    size = _array(halo_x_bytes) + halo_dy_bytes
    return np.asarray(2 * np.where(size > 0, 2 * _array(alpha_s) + size * _array(beta)[..., None], 0.0).sum(axis=-1))


def pipeline_transfer_s(
    p: _Values, segments: _Values, boundary_bytes: _Values, alpha_s: _Values, beta: _Values
) -> Floats:
    """Return the transfers of a pipeline: 2 (p + S - 2) max(alpha + B/S |y_G| delta beta) over the p - 1 boundaries.

    They are 0 where there is no boundary.

    Args:
        p: Number of stages, shape (...).
        segments: Number S of micro-batches, shape (...).
        boundary_bytes: B/S |y_G| delta of every boundary, shape (..., p - 1).
        alpha_s: Latency of every boundary, likewise.
        beta: Seconds per byte of every boundary, likewise.

    Source: Kahira et al., "An Oracle ...", Table 1, row Layer, communication.
    """
    size = _array(boundary_bytes)
    slowest = (_array(alpha_s) + size * beta).max(axis=-1, initial=0.0)
    return np.asarray(2 * (_array(p) + segments - 2) * slowest)


def memory_bytes(
    activations: _Values, weights: _Values, biases: _Values, *, gamma: float, delta: float, weight_copies: int = 2
) -> Floats:
    """Return the memory of one device: delta (gamma sum 2 (|x| + |y|) + sum(2 |w| + |b|)).

    The table multiplies both sums by gamma.  Here gamma is the reuse of activations only, because weights and their
    gradients are in memory all the time (with gamma = 1 it is the same).  The 2 of the activations stands for them and
    their gradients, the 2 of the weights for values and gradients.

    Args:
        activations: |x| + |y| of each layer for the device's samples, shape (..., G).
        weights: The device's |w| of each layer, shape (..., G).
        biases: The device's |b| of each layer, shape (..., G).
        gamma: Memory reuse.
        delta: Bytes of an element.
        weight_copies: Elements in memory for each weight: 2 as printed, more with the state of an optimizer.

    Source: Kahira et al., "An Oracle ...", Table 1, all rows, memory.
    """
    reused = gamma * 2 * _array(activations).sum(axis=-1)
    return np.asarray(delta * (reused + (weight_copies * _array(weights) + biases).sum(axis=-1)))
