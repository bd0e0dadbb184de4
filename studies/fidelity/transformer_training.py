"""Iterations of language models: public times beside those of the kernels, collectives and launches they are made of.

That of GPT is priced as Megatron runs it with full recomputation: for each micro-batch and layer two passes forward and
one backward, attention with its scores in memory, six all-reduces over the tensor-parallel devices; then the gradients'
all-reduce over the replicas and the update.  Kernels and collectives do not overlap; the host runs beside them.  Of a
pipeline the stage with the logits is passed by all micro-batches, the others by one.

The host launches kernels one by one and runs ahead of the device, so a pass over layers takes as long as the slower of
the two.  The kernels of Megatron's layer, by its source:

    forward   normalisations 2, products 4 and the addition of one bias, scores, softmax, dropout, values, their
              transposition, two sums of bias, dropout and residual, activation: 15
    backward  products 8, gradients of biases 4, attention's products 4, of softmax, dropout and transpositions 5,
              normalisations 6, activation 1, sums of bias and residual 4, residuals 2, accumulation of 12
              parameters: 46

and one all-reduce at each end of attention and of the products around the activation.

Source:
    Shoeybi et al., Megatron-LM, 2019, Sec. 3: the split of a layer.  Narayanan et al., 2021: recomputation, and
    Sec. 2.2.1: the time of a pipeline.  Kernels: NVIDIA/Megatron-LM, megatron/model/transformer.py and
    fused_softmax.py of 2021.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from groundwork.array_types import Floats
from groundwork.units import MILLI
from hwprofiles.compute.compute_profile import ComputeProfile
from hwprofiles.compute.fused_kernels import elementwise_kernels, norm_kernels
from hwprofiles.compute.fused_times import fused_s
from hwprofiles.compute.kernels import Kernels
from hwprofiles.compute.profile_file import load_profile
from planner.cost.library_rounds import library_collective_s
from planner.topology.network_routes import routes_of_cluster
from studies.fidelity.collective_times import judged_cluster
from studies.fidelity.device_names import rows_of_table
from studies.fidelity.judged_row import JudgedRow

_PROFILE, _PER_NODE = "a100-80gb@float16", 8
_CLUSTER, _CLUSTER_OF = "dgx-a100", {"VIA-Research/vTrain": "vtrain-a100"}
"""The machines, and those of sources whose own collectives were measured; links are the same, calls take longer."""
_BYTES, _UPDATE_ACCESSES = 2, 13
"""Bytes of an element; half words that a parameter's update by Adam with master weights in float32 moves."""
GPT_WORDS = 51200
_SMALL = 4096000
"""Tokens of a micro-batch times hidden size over tensor parallelism below which layers count as small."""

_FORWARD, _BACKWARD = 15, 46
_ALL_REDUCES = 2
"""All-reduces of a layer in a pass, of tensor-parallel devices."""
_HEAD = 15
"""Kernels of the words' embedding, their logits and the loss; twice as many backward."""
_UNFUSED, _FUSED_MULTIPLE = 4, 4
"""Kernels more where softmax is not fused, and the number that sequences times heads must be a multiple of to be."""
_LAUNCH_S = 45.8e-6
"""Time of the host from one kernel to the next: Python, recomputation and autograd included.  Fitted to the rows of
vTrain that are named by ``_HOST_FITTED``; those of other hidden sizes or degrees would give 38 to 52 microseconds.
These have one all-reduce an iteration: with the library of ``_CLUSTER`` the fit is the same to 0.1 microseconds."""
_HOST_FITTED = {"source": "VIA-Research/vTrain", "hidden": 1024, "tensor": 1, "pipeline": 1}
"""Sizes of the rows that the host's time was fitted to."""


class _Sizes(NamedTuple):
    """What the time of a layer depends on."""

    hidden: int
    heads: int
    seq_len: int
    micro_batch: int
    tensor: int


def transformer_rows() -> Iterator[JudgedRow]:
    """Yield every measured iteration of GPT, then measured passes of single layers."""
    rows = rows_of_table("gpt_iterations")
    for row in sorted(rows, key=lambda each: (each.source, each.pipeline > 1, each.tensor)):
        size = "small" if is_small(row) else "large"
        staged = row.pipeline > 1
        where = "pipelines" if staged else f"{size} layers"
        yield gpt_row(
            row,
            measure=f"iterations of GPT, {where} (formulas of a study)",
            compared=f"{row.tensor} tensor-parallel, {where}",
            devices=f"{row.tensor} x {row.replicas}{f' x {row.pipeline}' if staged else ''} GPUs",
            subject=f"{row.tensor} tensor-parallel",
            times=(row.time_s, gpt_iteration_s(row)),
            fitted=all(getattr(row, name) == value for name, value in _HOST_FITTED.items()),
        )
    yield from _layer_rows()


def is_small(row: Any) -> bool:
    """Return whether the layers of a row are so small that the host may be waited for."""
    return bool(row.seq_len * row.micro_batch * row.hidden / row.tensor < _SMALL)


def gpt_row(
    row: Any, *, measure: str, compared: str, devices: str, subject: str, times: tuple[float, float], **more: Any
) -> JudgedRow:
    """Return a measured iteration of GPT beside its prediction.

    Args:
        row: Sizes, and the software that ran it.
        measure: Name of the measure.
        compared: What rows of one comparison have in common beside the software.
        devices: Devices, and what else the label says.
        subject: What rows of one subject have in common beside the hidden size.
        times: Measured and predicted time.
        more: Other fields of the result.
    """
    software = row.source.rpartition("/")[2]
    return JudgedRow(
        measure=measure,
        comparison=f"{software}, A100, {compared}",
        label=f"hidden {row.hidden}, {row.seq_len} x {row.micro_batch} tokens, {devices}",
        group=f"{software.lower()}-a100-iterations",
        subject=f"hidden {row.hidden}, {subject}",
        size=row.micro_batch,
        measured_s=times[0],
        predicted_s=times[1],
        profile=_PROFILE.partition("@")[0],
        **more,
    )


def _layer_rows() -> Iterator[JudgedRow]:
    """Yield measured passes of single layers, which the host does not bound."""
    for row in rows_of_table("gpt_layers"):
        forward_s, backward_s = _passes_s(_sizes(row), _CLUSTER)
        backward_s += forward_s if row.phase.endswith("recomputed") else 0.0
        yield JudgedRow(
            measure="layers of GPT (formulas of a study)",
            comparison="Megatron-LM, A100, layers",
            label=f"hidden {row.hidden}, {row.seq_len} x {row.micro_batch} tokens, {row.tensor} GPUs, {row.phase}",
            group="megatron-lm-a100-iterations",
            subject=row.phase,
            measured_s=row.time_ms * MILLI,
            predicted_s=forward_s if row.phase == "forward" else backward_s,
        )


def gpt_iteration_s(row: Any) -> float:
    """Return the predicted seconds of an iteration.

    Args:
        row: Its sizes: ``layers``, ``hidden``, ``heads``, ``seq_len``, ``micro_batch`` in sequences, ``micro_batches``,
            ``tensor`` (tensor-parallel devices), ``pipeline`` (stages) and ``replicas``; and its ``source``.
    """
    profile, hidden, split, tokens = load_profile(_PROFILE), row.hidden, row.tensor, row.seq_len * row.micro_batch
    logits_s = np.array(_product_s(profile, tokens, GPT_WORDS // split, hidden))
    logits_s += _pass_s(profile, tokens * GPT_WORDS / split, 4)
    last_s = _stage_s(row, logits_s)
    others_s = (row.pipeline - 1) * _stage_s(row) if row.pipeline > 1 else 0.0
    words = GPT_WORDS * hidden / split
    parameters = 12 * row.layers / row.pipeline * hidden**2 / split + words
    replicas = tuple(range(0, split * row.replicas, split))
    updated_s = _all_reduce_s(_cluster_of(row), replicas, _BYTES * parameters)
    updated_s += _pass_s(profile, parameters, _UPDATE_ACCESSES)
    if row.pipeline > 1:  # the first and the last stage both hold the words
        ends = (0, split * row.replicas * (row.pipeline - 1))
        updated_s += _all_reduce_s(_cluster_of(row), ends, _BYTES * words)
    return float(row.micro_batches * last_s + others_s + updated_s)


def _stage_s(row: Any, logits_s: Floats | None = None) -> float:
    """Return the seconds of a micro-batch in one stage of a pipeline: in each pass the slower of device and host.

    Args:
        row: Sizes of the iteration.
        logits_s: Seconds of the logits, forward and backward, in the stage that computes them.
    """
    layers, (forward_s, backward_s) = row.layers / row.pipeline, _passes_s(_sizes(row), _cluster_of(row))
    device_s = layers * np.array([forward_s, forward_s + backward_s]) + (0.0 if logits_s is None else logits_s)
    heads, split = row.micro_batch * row.heads // row.tensor, row.tensor > 1
    return float(np.maximum(device_s, host_s(layers=layers, heads=heads, split=split, head=logits_s is not None)).sum())


def host_s(*, layers: float, heads: int, split: bool, head: bool) -> tuple[float, float]:
    """Return the seconds of the host for a micro-batch, forward and backward with recomputation.

    Args:
        layers: Layers of the device.
        heads: Sequences times heads that the device computes.
        split: Whether layers are split over tensor-parallel devices.
        head: Whether the device computes the logits, too.
    """
    unfused = 0 if heads % _FUSED_MULTIPLE == 0 else _UNFUSED
    summed = _ALL_REDUCES if split else 0
    forward = _FORWARD + unfused + summed
    backward = forward + _BACKWARD + unfused + summed
    ends = _HEAD if head else 0
    return (layers * forward + ends) * _LAUNCH_S, (layers * backward + 2 * ends) * _LAUNCH_S


def _cluster_of(row: Any) -> str:
    """Return the name of the cluster that stands for the machines of a row."""
    return _CLUSTER_OF.get(row.source, _CLUSTER)


def _sizes(row: Any) -> _Sizes:
    """Return the sizes of a row's layers."""
    return _Sizes(*(getattr(row, name) for name in _Sizes._fields))


@lru_cache(maxsize=1024)
def _passes_s(row: _Sizes, cluster: str) -> tuple[float, float]:
    """Return the seconds of one layer of one device, forward and backward, with its all-reduces."""
    forward_s, backward_s = _layer_s(load_profile(_PROFILE), row)
    summed_s = _all_reduce_s(cluster, tuple(range(row.tensor)), _BYTES * row.seq_len * row.micro_batch * row.hidden)
    return forward_s + 2 * summed_s, backward_s + 2 * summed_s


def _layer_s(profile: ComputeProfile, row: _Sizes) -> tuple[float, float]:
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
        flop=2 * size[0] * size[1] * size[2],
        memory_bytes=np.array([float(moved)]),
        rows=size[0],
        columns=size[1],
        depth=size[2],
        samples=np.ones(1),
    )
    return float(profile.time_s(kernels, phase=phase)[0])


def _pass_s(profile: ComputeProfile, elements: float, accesses: float) -> float:
    """Return the seconds of passes over elements."""
    return float(fused_s(profile, elementwise_kernels(elements=np.array([elements]), accesses=accesses))[0])


def _norm_s(profile: ComputeProfile, rows: int, columns: int, phase: str) -> float:
    """Return the seconds of a normalisation."""
    kernels = norm_kernels(rows=np.array([float(rows)]), columns=np.array([float(columns)]), phase=phase)
    return float(fused_s(profile, kernels, phase)[0])


@lru_cache(maxsize=1024)
def _all_reduce_s(cluster: str, devices: tuple[int, ...], size_bytes: float) -> float:
    """Return the seconds of an all-reduce as the machines' library runs it, over nodes of eight devices."""
    if len(devices) == 1:
        return 0.0
    nodes = devices[-1] // _PER_NODE + 1
    network = routes_of_cluster(judged_cluster(cluster if nodes == 1 else f"{cluster}:nodes={nodes}"))
    return float(library_collective_s(network, "all-reduce", devices, np.array(size_bytes)))
