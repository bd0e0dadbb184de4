"""Table 1 of ParaDL as functions of arrays; all times are of one iteration, an epoch has D/B of them.

Symbols: D samples of the data set, B of a mini-batch, G layers, p devices, S segments of a pipeline; FW, BW and WU
times of a layer's forward pass, backward pass and update; |x|, |y|, |w|, |b| sizes of its input, output, weights and
bias; alpha the start-up time of a message, beta the inverse bandwidth, delta bytes of a number, gamma memory reuse.
The last axis of an array runs over layers, messages or stages; the axes before it, and the other arguments,
broadcast.  Alpha is given for every message, because the latency of a link may depend on the size.

Source:
    Kahira et al., "An Oracle for Guiding Large-Scale Model/Hybrid Parallel Training of Convolutional Neural
    Networks", Table 1.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Floats

__all__ = [
    "activation_collectives_s",
    "computation_s",
    "gradient_all_reduce_s",
    "halo_exchange_s",
    "memory_bytes",
    "pipeline_computation_s",
    "pipeline_transfer_s",
]

_Numbers = NDArray[Any] | float


def _array(values: _Numbers) -> Floats:
    return np.asarray(values, dtype=np.float64)


def computation_s(forward_s: _Numbers, backward_s: _Numbers, update_s: _Numbers) -> Floats:
    """Sum of FW + BW + WU over the layers: all rows but Layer, for what one device computes in an iteration.

    Rows Serial to Data + Filter print D/p sum(FW + BW) + D/B sum(WU) an epoch, FW and BW of one sample.  A device's
    share of an iteration is B/p samples of FW + BW (of all rows), and WU, over p where it holds a p-th of the weights.
    """
    return np.asarray((_array(forward_s) + backward_s + update_s).sum(axis=-1))


def pipeline_computation_s(forward_s: _Numbers, backward_s: _Numbers, update_s: _Numbers, segments: _Numbers) -> Floats:
    """Row Layer: (p + S - 1) (max FW_G + max BW_G) + max WU_G, with FW_G and BW_G of one micro-batch.

    The row prints max WU_G inside the bracket that D (p + S - 1) / S multiplies; WU is not a time of a sample, and all
    other rows multiply it by D/B, once an iteration: it is read so here.

    Args:
        forward_s, backward_s: Of each of the p stages for a micro-batch of B/S samples, shape (..., p).
        update_s: Of each stage, shape (..., p).
        segments: S.
    """
    forward, backward, update = _array(forward_s), _array(backward_s), _array(update_s)
    steps = forward.shape[-1] + _array(segments) - 1
    return np.asarray(steps * (forward.max(axis=-1) + backward.max(axis=-1)) + update.max(axis=-1))


def gradient_all_reduce_s(p: _Numbers, message_bytes: _Numbers, alpha_s: _Numbers, beta: _Numbers) -> Floats:
    """Row Data: 2 (p - 1) (alpha + sum |w| / p delta beta), a ring all-reduce.

    With one message for all layers it is the row; with a message a layer every one has its own alpha.

    Args:
        p: Replicas, shape (...).
        message_bytes: |w| delta of every message, shape (..., M).
        alpha_s: Of a p-th of each message.
        beta: Seconds per byte of a round, shape (...).
    """
    rounds = 2 * (_array(p) - 1)
    size = _array(message_bytes) / _array(p)[..., None]
    return np.asarray(rounds * np.where(size > 0, _array(alpha_s) + size * _array(beta)[..., None], 0.0).sum(axis=-1))


def activation_collectives_s(
    p: _Numbers, tensor_bytes: _Numbers, alpha_s: _Numbers, beta: _Numbers, *, passes: int = 3
) -> Floats:
    """Rows Filter and Channel: 3 (p - 1) sum(alpha + B |y| / p delta beta) over the tensors between layers.

    Filter gathers y forward (p - 1 rounds) and sums dL/dx backward (2 (p - 1) rounds); Channel sums forward and
    gathers backward.  In Data + Filter p is p2, the devices of a group, and B the samples of a group; the row's
    ``p^2`` and ``p^1`` are p2 and p1, the indices having become exponents.

    Args:
        p: Devices of a group.
        tensor_bytes: B |y| delta of each tensor.
        alpha_s: Of a p-th of each tensor.
        beta: Seconds per byte of a round.
        passes: Times p - 1 rounds: 3 as printed; 2 where backward only the needed p-th is summed.
    """
    size = _array(tensor_bytes) / _array(p)[..., None]
    each = np.where(size > 0, _array(alpha_s) + size * _array(beta)[..., None], 0.0)
    return np.asarray(passes * (_array(p) - 1) * each.sum(axis=-1))


def halo_exchange_s(halo_x_bytes: _Numbers, halo_dy_bytes: _Numbers, alpha_s: _Numbers, beta: _Numbers) -> Floats:
    """Row Spatial: 2 sum(2 alpha + B (halo(x) + halo(dL/dy)) delta beta).

    Read as: with each of 2 neighbours, one message forward, halo(x), and one backward, halo(dL/dy).  A layer whose
    windows do not reach over the edge of a part sends none.

    Args:
        halo_x_bytes: B halo(x) delta of a layer for one neighbour, shape (..., G).
        halo_dy_bytes: B halo(dL/dy) delta.
        alpha_s: Of a message.
        beta: Seconds per byte, of one neighbour after the other.
    """
    size = _array(halo_x_bytes) + halo_dy_bytes
    return np.asarray(2 * np.where(size > 0, 2 * _array(alpha_s) + size * _array(beta)[..., None], 0.0).sum(axis=-1))


def pipeline_transfer_s(
    p: _Numbers, segments: _Numbers, boundary_bytes: _Numbers, alpha_s: _Numbers, beta: _Numbers
) -> Floats:
    """Row Layer: 2 (p + S - 2) max(alpha + B/S |y_G| delta beta) over the p - 1 boundaries; 0 where there is none.

    Args:
        p, segments: Stages and micro-batches.
        boundary_bytes: B/S |y_G| delta of every boundary, shape (..., p - 1).
        alpha_s, beta: Of every boundary.
    """
    size = _array(boundary_bytes)
    slowest = (_array(alpha_s) + size * beta).max(axis=-1, initial=0.0)
    return np.asarray(2 * (_array(p) + segments - 2) * slowest)


def memory_bytes(
    activations: _Numbers,
    weights: _Numbers,
    biases: _Numbers,
    *,
    gamma: float,
    delta: float,
    weight_copies: int = 2,
) -> Floats:
    """All rows: delta (gamma sum 2 (|x| + |y|) + sum(2 |w| + |b|)) of what one device holds.

    The table multiplies both sums by gamma; read as reuse of activations only, because weights and gradients live
    all the time (with gamma = 1 it is the same).  The 2 of the activations stands for them and their gradients, the 2
    of the weights for values and gradients.

    Args:
        activations: |x| + |y| of each layer for the device's samples, shape (..., G).
        weights, biases: The device's |w| and |b|, shape (..., G).
        gamma, delta: Memory reuse, and bytes of a number.
        weight_copies: Numbers kept a weight: 2 as printed, more with the state of an optimizer.
    """
    kept = gamma * 2 * _array(activations).sum(axis=-1)
    return np.asarray(delta * (kept + (weight_copies * _array(weights) + biases).sum(axis=-1)))
