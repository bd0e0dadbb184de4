"""Kernels of transformers that are no products: attention, normalisation, elementwise passes, fused experts."""

from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from hwprofiles.compute.kernels import KERNEL_KINDS

FUSED_KINDS = KERNEL_KINDS[2:]
"""Kinds of kernels that have an efficiency of their own."""
FUSED_PHASES = ("forward", "backward")
"""Phases of such kernels."""
HEAD_SIZE = 128.0
"""Head size that the ceiling of attention is given for; also the queries of one of its blocks."""
_PASSES = 5.0
"""Accesses of a token for each of its experts: sorted, read, written, weighted and summed."""
_BACKWARD_FLOP = 2.5
"""Products of attention's backward pass, five, over those of its forward pass, two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedEfficiency:
    """The parameters of one kind of fused kernel in one phase."""

    ceiling: float = 0.6
    """Largest fraction of the peak, for heads of 128 in attention."""
    half_blocks: float = 1.0
    """Blocks a multiprocessor at which those that wait for others double the time."""
    head_exponent: float = 0.5
    """Attention: exponent of the head size, up to 128, in the fraction of the peak."""
    memory: float = 0.6
    """Fraction of the memory bandwidth that traffic reaches; no arithmetic hides it."""
    overhead_s: float = 10e-6
    """Time of the kernel beside arithmetic and traffic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedKernels:
    """Kernels of one kind, one entry each in arrays of one shape."""

    kind: str
    """One of ``FUSED_KINDS``."""
    flop: Floats
    """Floating-point operations of products; 0 for kernels that only stream."""
    memory_bytes: Floats
    """Bytes read and written, each once; NaN for a part that is computed otherwise."""
    blocks: Floats
    """Blocks that run independently of each other, >= 1."""
    head_size: Floats
    """Attention: elements of a head; 128 for others."""


def attention_kernels(
    *,
    samples: Floats,
    heads: Floats,
    key_heads: Floats,
    queries: Floats,
    keys: Floats,
    head_size: Floats,
    causal: bool,
    element_bytes: int = 2,
    phase: str = "forward",
) -> FusedKernels:
    """Return attention that keeps its scores on the chip, as flash attention does.

    Args:
        samples: Sequences.
        heads: Heads of the queries.
        key_heads: Heads of keys and values: fewer than ``heads`` where groups of queries share them.
        queries: Positions of a sequence's queries.
        keys: Positions of its keys.
        head_size: Elements of a head.
        causal: Queries see no later keys: half the arithmetic.
        element_bytes: Bytes of an element.
        phase: One of ``FUSED_PHASES``.

    Source:
        Dao, FlashAttention-2, 2023: two products forward, five backward.
    """
    backward = _is_backward(phase)
    flop = 4.0 * samples * heads * queries * keys * head_size * (0.5 if causal else 1.0)
    moved = 2.0 * samples * head_size * (heads * queries + key_heads * keys) * element_bytes
    return FusedKernels(
        kind="attention",
        flop=flop * (_BACKWARD_FLOP if backward else 1.0),
        memory_bytes=moved * (2.0 if backward else 1.0),
        blocks=samples * heads * np.maximum(queries / HEAD_SIZE, 1.0),
        head_size=np.broadcast_to(head_size, np.shape(flop)),
    )


def norm_kernels(*, rows: Floats, columns: Floats, element_bytes: int = 2, phase: str = "forward") -> FusedKernels:
    """Return the normalisation of rows: one read and one write forward; two reads and one write backward."""
    return _streaming("norm", rows * columns * ((3.0 if _is_backward(phase) else 2.0) * element_bytes))


def elementwise_kernels(*, elements: Floats, accesses: Floats | float = 2.0, element_bytes: int = 2) -> FusedKernels:
    """Return passes over elements with so many reads and writes of each."""
    return _streaming("elementwise", elements * (accesses * element_bytes))


def expert_kernels(
    *,
    tokens: Floats,
    hidden: Floats,
    inner: Floats,
    experts: Floats,
    top_k: Floats,
    gated: bool = True,
    element_bytes: int = 2,
) -> FusedKernels:
    """Return the products of a layer of experts, forward, as one kernel for each product.

    Args:
        tokens: Tokens that the device's experts share.
        hidden: Elements of a token.
        inner: Elements between the two products of an expert.
        experts: Experts of the device.
        top_k: Experts that a token passes through.
        gated: Experts have a third product, of the gate.
        element_bytes: Bytes of an element.
    """
    products, pairs = 3.0 if gated else 2.0, tokens * top_k
    weights = products * np.minimum(experts, pairs) * hidden * inner
    moved = (weights + pairs * (_PASSES * hidden + 2.0 * products * inner)) * element_bytes
    return _of_experts(2.0 * products * pairs * hidden * inner, moved, pairs, inner, experts)


def expert_product_kernels(
    *, rows: Floats, depth: Floats, columns: Floats, experts: Floats, element_bytes: int = 2
) -> FusedKernels:
    """Return one product of rows with the matrices of experts, forward or for the gradient of rows or matrices.

    Args:
        rows: Rows of all experts of the device together.
        depth: Rows of a matrix, over which forward products sum.
        columns: Columns of a matrix.
        experts: Experts of the device.
        element_bytes: Bytes of an element.
    """
    moved = (experts * depth * columns + rows * (depth + columns)) * element_bytes
    return _of_experts(2.0 * rows * depth * columns, moved, rows, columns, experts)


def _of_experts(flop: Floats, moved: Floats, rows: Floats, columns: Floats, experts: Floats) -> FusedKernels:
    """Return the kernels of experts, whose blocks are tiles of the rows of one expert each."""
    tiles = np.maximum(rows / HEAD_SIZE, np.minimum(experts, rows)) * np.maximum(columns / HEAD_SIZE, 1.0)
    return FusedKernels(
        kind="moe",
        flop=flop,
        memory_bytes=moved,
        blocks=np.maximum(tiles, 1.0),
        head_size=np.full_like(flop, HEAD_SIZE),
    )


def _streaming(kind: str, moved: Floats) -> FusedKernels:
    """Return kernels that only move memory."""
    none = np.zeros_like(moved)
    return FusedKernels(kind=kind, flop=none, memory_bytes=moved, blocks=none + 1.0, head_size=none + HEAD_SIZE)


def _is_backward(phase: str) -> bool:
    """Return whether a phase is the backward one; others than the two are refused."""
    if phase not in FUSED_PHASES:
        raise ConfigError(f"phase of a fused kernel must be one of {', '.join(FUSED_PHASES)}, got {phase!r}")
    return phase == FUSED_PHASES[1]
