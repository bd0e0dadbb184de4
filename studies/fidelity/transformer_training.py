"""Iterations of GPT on one machine: public times beside the sum of kernels and collectives that they are made of.

The iteration is priced as Megatron runs it with full recomputation: for each micro-batch and layer two passes forward
and one backward, attention with its scores in memory, six all-reduces over the tensor-parallel devices; then the
gradients' all-reduce over the replicas and the update.  Nothing overlaps, and the host is not counted.

Source:
    Shoeybi et al., Megatron-LM, 2019, Sec. 3: the split of a layer.  Narayanan et al., 2021: recomputation.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from hwprofiles.catalogue import load_cluster
from hwprofiles.compute import ComputeProfile, Kernels, elementwise_kernels, fused_s, load_profile, norm_kernels
from planner.cost import library_collective_s
from planner.topology import routes_of_cluster
from studies.fidelity.device_names import rows_of_table
from studies.fidelity.judged_row import JudgedRow

__all__ = ["gpt_iteration_s", "transformer_rows"]

_PROFILE, _CLUSTER = "a100-80gb@float16", "dgx-a100"
_BYTES, _UPDATE_ACCESSES = 2, 13
"""Bytes of an element; half words that a parameter's update by Adam with master weights in float32 moves."""
_VOCABULARY = 51200
_SMALL = 4096000
"""Tokens of a micro-batch times hidden size over tensor parallelism below which layers count as small.  Of the
smallest, two sequences take as long as one, 3.6 ms a layer over four devices: the host's launches bound them."""


def transformer_rows() -> Iterator[JudgedRow]:
    """Yield every measured iteration of GPT without pipelines."""
    for row in sorted(rows_of_table("vtrain_iterations"), key=lambda each: each.tensor):
        small = row.seq_len * row.micro_batch * row.hidden / row.tensor < _SMALL
        yield JudgedRow(
            measure=f"iterations of GPT, {'small' if small else 'large'} layers",
            comparison=f"vTrain, A100, {row.tensor} tensor-parallel, {'small' if small else 'large'} layers",
            label=f"hidden {row.hidden}, {row.seq_len} x {row.micro_batch} tokens, {row.tensor} x {row.replicas} GPUs",
            group="vtrain-a100-iterations",
            subject=f"hidden {row.hidden}, {row.tensor} tensor-parallel",
            size=row.micro_batch,
            measured_s=row.time_s,
            predicted_s=gpt_iteration_s(row),
            reason="bound by the host's launches, which are not modelled" if small else "",
        )


def gpt_iteration_s(row: Any) -> float:
    """Return the predicted seconds of an iteration.

    Args:
        row: Its sizes: ``layers``, ``hidden``, ``heads``, ``seq_len``, ``micro_batch`` in sequences, ``micro_batches``,
            ``tensor`` (tensor-parallel devices) and ``replicas``.
    """
    profile, hidden, split, tokens = load_profile(_PROFILE), row.hidden, row.tensor, row.seq_len * row.micro_batch
    forward_s, backward_s = _layer_s(profile, row)
    summed_s = _all_reduce_s(tuple(range(split)), _BYTES * tokens * hidden)
    layer_s = 2 * forward_s + backward_s + 6 * summed_s
    logits_s = sum(_product_s(profile, tokens, _VOCABULARY // split, hidden))
    logits_s += _pass_s(profile, tokens * _VOCABULARY / split, 8)
    parameters = (12 * row.layers * hidden + _VOCABULARY) * hidden / split
    replicas = tuple(range(0, split * row.replicas, split))
    updated_s = _all_reduce_s(replicas, _BYTES * parameters) + _pass_s(profile, parameters, _UPDATE_ACCESSES)
    return float(row.micro_batches * (row.layers * layer_s + logits_s) + updated_s)


def _layer_s(profile: ComputeProfile, row: Any) -> tuple[float, float]:
    """Return the seconds of one layer of one device, forward and backward, without its all-reduces."""
    hidden, split, tokens = row.hidden, row.tensor, row.seq_len * row.micro_batch
    heads, head, inner = row.micro_batch * row.heads // split, hidden // row.heads, 4 * hidden // split
    products = [(3 * hidden // split, hidden), (hidden, hidden // split), (inner, hidden), (hidden, inner)]
    times = [_product_s(profile, tokens, width, depth) for width, depth in products]
    scores_s = _batched_s(profile, heads, row.seq_len, row.seq_len, head)
    values_s = _batched_s(profile, heads, row.seq_len, head, row.seq_len)
    scores = float(heads * row.seq_len**2)
    # Softmax and dropout of the scores, the activation between the products, dropout and sum after each half.
    passes_s = (
        _pass_s(profile, scores, 4.5) + _pass_s(profile, tokens * inner, 2) + _pass_s(profile, tokens * hidden, 8)
    )
    back_s = _pass_s(profile, scores, 5.5) + _pass_s(profile, tokens * inner, 3) + _pass_s(profile, tokens * hidden, 6)
    norms_s = [2 * _norm_s(profile, tokens, hidden, phase) for phase in ("forward", "backward")]
    forward_s = sum(time[0] for time in times) + scores_s + values_s + passes_s + norms_s[0]
    return forward_s, sum(time[1] for time in times) + 2 * (scores_s + values_s) + back_s + norms_s[1]


def _product_s(profile: ComputeProfile, tokens: int, width: int, depth: int) -> tuple[float, float]:
    """Return the seconds of a dense product of all tokens, forward, and of both its gradients."""
    sizes = {
        "forward": (width, tokens, depth),
        "activation_gradient": (depth, tokens, width),
        "weight_gradient": (width, depth, tokens),
    }
    times = [_kernel_s(profile, *size, phase=phase) for phase, size in sizes.items()]
    return times[0], times[1] + times[2]


def _batched_s(profile: ComputeProfile, count: int, rows: int, columns: int, depth: int) -> float:
    """Return the seconds of so many small products as one kernel."""
    return _kernel_s(profile, columns, rows * count, depth, count=count)


def _kernel_s(
    profile: ComputeProfile, rows: int, columns: int, depth: int, *, phase: str = "forward", count: int = 1
) -> float:
    """Return the seconds of a product; of several with a weight each, whose columns are given together."""
    size = [np.array([float(each)]) for each in (rows, columns, depth)]
    moved = (rows * depth * count + columns * (rows + depth)) * _BYTES
    kernels = Kernels(
        flop=2 * size[0] * size[1] * size[2], memory_bytes=np.array([float(moved)]), rows=size[0], columns=size[1],
        depth=size[2], samples=np.ones(1),
    )  # fmt: skip
    return float(profile.time_s(kernels, phase=phase)[0])


def _pass_s(profile: ComputeProfile, elements: float, accesses: float) -> float:
    """Return the seconds of passes over elements."""
    return float(fused_s(profile, elementwise_kernels(elements=np.array([elements]), accesses=accesses))[0])


def _norm_s(profile: ComputeProfile, rows: int, columns: int, phase: str) -> float:
    """Return the seconds of a normalisation."""
    kernels = norm_kernels(rows=np.array([float(rows)]), columns=np.array([float(columns)]), phase=phase)
    return float(fused_s(profile, kernels, phase)[0])


@lru_cache(maxsize=1024)
def _all_reduce_s(devices: tuple[int, ...], size_bytes: float) -> float:
    """Return the seconds of an all-reduce as the machine's library runs it."""
    network = routes_of_cluster(load_cluster(_CLUSTER))
    return float(library_collective_s(network, "all-reduce", devices, np.array(size_bytes)))
