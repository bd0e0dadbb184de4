"""Memory traffic of an update: what kernels of an optimizer read and write of each parameter.

Adam in float32, by one kernel and by one for each operation (``foreach``)::

    one      reads w, g, m, v and writes w, m, v                                     7

    each     w = w (1 - r d)        2        v' = sqrt(v)              2
             m = m + (g - m) c      3        v' = v' / k               2
             v = v b                2        v' = v' + e               2
             v = v + g g c          3        w = w - r m / v'          4             20

Parameters of sixteen bits have master weights of four bytes, with which the kernels compute; the copy in sixteen bits
is written by the same kernel, or by one that reads the master weights.

Source:
    pytorch/pytorch, torch/optim/adamw.py and sgd.py, ``_multi_tensor_adamw`` and ``_multi_tensor_sgd``.
    NVIDIA/Megatron-LM of 2021, megatron/optimizer/optimizer.py: gradients are converted to float32, divided by the
    loss scale, and their norm computed; parameters are updated by Apex's kernel and copied.
    huggingface/nanotron, optim/clip_grads.py and gradient_accumulator.py: the norm, the scaling, the copy, zeros.
"""

from planner.cost.software import Software

OPTIMIZERS = {"sgd": 0, "momentum": 1, "adam": 2}
"""Elements of state that an optimizer keeps for every parameter, beside its value and its gradient."""
_EACH = {"sgd": 3, "momentum": 8, "adam": 20}
"""Accesses of an optimizer that has a kernel for each operation."""
_WIDE_BYTES = 4


def update_bytes(software: Software, optimizer: str, element_bytes: int, gradient_bytes: int, *, scaled: bool) -> float:
    """Return the bytes that updates read and write of each parameter that a device updates.

    Args:
        software: The kernels.
        optimizer: ``sgd``, ``momentum`` or ``adam``.
        element_bytes: Bytes of a parameter.
        gradient_bytes: Bytes of its gradient.
        scaled: Whether gradients are those of a scaled loss, as in float16.
    """
    wide, gradient = max(element_bytes, _WIDE_BYTES), gradient_bytes
    moved = 0.0
    if software.update and gradient < wide:
        moved, gradient = moved + gradient + wide, wide
    if software.update and scaled:
        moved += 2.0 * gradient
    if software.update > 1:
        moved += _EACH[optimizer] * wide
    else:
        moved += 2.0 * (1 + OPTIMIZERS[optimizer]) * wide + gradient
    if element_bytes < wide:
        moved += element_bytes + (wide if software.update else 0.0)
    return moved


def gradient_pass_bytes(software: Software, gradient_bytes: int) -> float:
    """Return the bytes that passes over all gradients move of each, to clip it and to set it to zero."""
    return float(gradient_bytes) * (software.clips + (software.sums > 1))
