"""Memory traffic of an update: what kernels of an optimizer read and write of each parameter.

Adam in float32, by one kernel and by one for each operation (``foreach``)::

    one      reads w, g, m, v and writes w, m, v                                     7

    each     w = w (1 - r d)        2        v' = sqrt(v)              2
             m = m + (g - m) c      3        v' = v' / k               2
             v = v b                2        v' = v' + e               2
             v = v + g g c          3        w = w - r m / v'          4             20

Of these accesses, g has the type of accumulated gradients, m and v that of state, and w that of master weights where
there are any: then a copy in the type that products read is written by the same kernel, or by one that reads w.

Source:
    pytorch/pytorch, torch/optim/adamw.py and sgd.py, ``_multi_tensor_adamw`` and ``_multi_tensor_sgd``.
    NVIDIA/Megatron-LM of 2021, megatron/optimizer/optimizer.py: gradients are converted to float32, divided by the
    loss scale, and their norm computed; parameters are updated by Apex's kernel and copied.
    huggingface/nanotron, optim/clip_grads.py and gradient_accumulator.py: the norm, the scaling, the copy, zeros.
"""

from operator import mul

from planner.cost.software import Software
from planner.graph.type_roles import TYPE_BYTES, DataTypes

OPTIMIZERS = {"sgd": 0, "momentum": 1, "adam": 2}
"""Elements of state that an optimizer keeps for every parameter, beside its value and its gradient."""
_EACH = {"sgd": (2, 1, 0), "momentum": (2, 1, 5), "adam": (4, 2, 14)}
"""Accesses of an optimizer that has a kernel for each operation: of weights, of gradients, and of state and what is
computed from it."""


def update_bytes(software: Software, optimizer: str, types: DataTypes, *, casts: int = 1) -> float:
    """Return the bytes that updates read and write of each parameter that a device updates.

    Args:
        software: The kernels.
        optimizer: ``sgd``, ``momentum`` or ``adam``.
        types: Data types by role; the gradients of products in float16 are those of a scaled loss.
        casts: Times that an iteration makes a copy of each parameter in the type in which products read it, where
            parameters have another; copies of master weights are made once.
    """
    gradient, updated, state = (TYPE_BYTES[each] for each in (types.accumulation, types.updated, types.state))
    moved = 0.0
    if software.update and gradient != updated:
        moved, gradient = moved + gradient + updated, updated
    if software.update and types.product == "float16":
        moved += 2.0 * gradient
    if software.update > 1:
        moved += sum(map(mul, _EACH[optimizer], (updated, gradient, state)))
    else:
        moved += 2.0 * updated + 2.0 * OPTIMIZERS[optimizer] * state + gradient
    if types.master:
        moved += TYPE_BYTES[types.parameter] + (updated if software.update else 0.0)
    if types.parameter != types.activation:
        moved += casts * (TYPE_BYTES[types.activation] + TYPE_BYTES[types.parameter])
    return moved


def gradient_pass_bytes(software: Software, gradient_bytes: int) -> float:
    """Return the bytes that passes over all gradients move of each, to clip it and to set it to zero."""
    return float(gradient_bytes) * (software.clips + (software.sums > 1))
