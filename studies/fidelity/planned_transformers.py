"""Iterations of language models as ``orrery plan`` prices them, beside public times.

Those of MPT and Llama divide parameters, gradients and optimizer state over their replicas (``fsdp``, ``hsdp=N``).  MPT
is GPT-2 of other sizes without dropout; its biases of positions in attention take the place of a table.
MPT's attention was the first FlashAttention, and its loss one kernel (``--software pytorch:flash=1,loss=0``); in its
attention's share of the peak is one number that was fitted, that heads of 64 reach as much as those of 128, so rows
with such heads are not judged.

Those of GPT, by Megatron with full recomputation, are data-, tensor- and pipeline-parallel.  Their hosts launch kernels
one by one (``--software megatron-2021``); small layers wait for them, and are a measure of their own.  A row as a
command::

    orrery plan gpt2:layers=24,hidden=1024,heads=16,sequence=1024,words=51200,attention_dropout_percent=10
        --cluster dgx-a100 --batch 16 --strategy data=2,tensor=4 --dtype float16 --optimizer adam
        --software megatron-2021 --recompute full

Those of Megatron-Core on H100 are data- and tensor-parallel with ZeRO 1 (``--cluster dgx-h100 --software
megatron-core``); nothing of them is fitted.

Those of nanotron, a Llama of 1.3 billion parameters on H100 of AWS, are data-, tensor- and pipeline-parallel, with
positions split beside tensors; ``--cluster p5 --software nanotron``.

A pass of a single layer is what the first of two blocks takes in such a plan, with its all-reduces.
"""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from groundwork.errors import InfeasiblePlanError
from groundwork.units import MILLI
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.graph.computation_graph import ComputationGraph
from planner.models.registry import load_model
from planner.plan.make_plan import SimulatedPlan, simulated_plan
from studies.fidelity.device_names import rows_of_table
from studies.fidelity.judged_row import JudgedRow

_PER_NODE, _HALF = 8, 2
_CLUSTERS = {
    "a100-40gb": ("dgx-a100", "hdr", 1600),
    "a100-80gb": ("dgx-a100", "hdr", 1600),
    "h100-80gb": ("dgx-h100", "ndr", 3200),
}
"""Clusters of the catalogue by device, the links between their machines, and the Gbit/s of these for a machine."""
_GPT_WORDS, _CORE_WORDS, _MPT_WORDS, _LLAMA_WORDS = 51200, 131072, 50368, 32000
_SMALL = 4096000
"""Tokens of a micro-batch times hidden size over tensor parallelism below which layers count as small."""
_HOST_FITTED = {"source": "VIA-Research/vTrain", "hidden": 1024, "tensor": 1, "pipeline": 1}
"""Sizes of the rows that the time of a launch was fitted to."""
_LAYER_KINDS = ("forward", "activation_gradient", "weight_gradient", "collective")
_FITTED_HEAD = 64
"""Size of the heads whose rows the first FlashAttention's share of the peak was fitted to."""
_SHARDS: Mapping[str, Any] = {"parameter_dtype": "float32", "gradient_dtype": "float32"}
"""Data types that PyTorch's FSDP keeps shards of parameters and of gradients in, whatever it gathers and sends."""
_FEW_GPUS, _MOST_GPUS, _EVERY = 16, 128, 4
"""GPUs of runs that are all judged, and of the largest: with more, an iteration takes a minute to simulate; and the
distance, in the table, of those that are judged between."""
_NANOTRON_LENGTH, _NANOTRON_LAYERS = 4096, 16
_HEAD_LAYERS = 4
"""Layers of nanotron's Llama that have as many parameters as its head."""
_PEERS_FITTED = 2, 2
"""Machines and stages of the rows, with tensors split, that the time of a collective's devices was fitted to."""
_EVERY_GPT = 12
"""Distance of the rows of GPT that are judged: one takes a second."""


def gpt_rows() -> Iterator[JudgedRow]:
    """Yield every twelfth measured iteration of GPT, Megatron's own on up to ``_MOST_GPUS``, and single layers."""
    table = [row for row in rows_of_table("gpt_iterations") if row.tensor * row.pipeline * row.replicas <= _MOST_GPUS]
    own = [row for row in table if row.source.startswith("NVIDIA")]
    for row in own + [row for row in table if row not in own][::_EVERY_GPT]:
        planned = _gpt(row)
        size = "small" if row.seq_len * row.micro_batch * row.hidden / row.tensor < _SMALL else "large"
        yield JudgedRow(
            measure=f"iterations of GPT, {size} layers",
            comparison=f"{row.source.rpartition('/')[2]}, A100, {size} layers",
            label=f"hidden {row.hidden}, {row.seq_len} x {row.micro_batch} tokens, {row.micro_batches} micro-batches, "
            f"{row.replicas} x {row.tensor} x {row.pipeline} GPUs",
            group=f"{row.source.rpartition('/')[2].lower()}-a100-iterations",
            subject=f"hidden {row.hidden}",
            size=row.micro_batch,
            measured=row.time_s,
            predicted=planned.replayed.iteration_s,
            peak_s=_peak_s(planned),
            fitted=all(getattr(row, name) == value for name, value in _HOST_FITTED.items()),
            profile="a100-80gb",
        )
    for row in rows_of_table("gpt_layers"):
        yield JudgedRow(
            measure="layers of GPT",
            comparison="Megatron-LM, A100, layers",
            label=f"hidden {row.hidden}, {row.seq_len} x {row.micro_batch} tokens, {row.tensor} GPUs, {row.phase}",
            group="megatron-lm-a100-iterations",
            subject=row.phase,
            measured=row.time_ms * MILLI,
            predicted=_layer_s(row),
            profile="a100-80gb",
        )
    for row in rows_of_table("megatron_core_iterations"):
        planned = _megatron_core(row)
        yield JudgedRow(
            measure="iterations of GPT on H100",
            comparison="Megatron-LM, H100",
            label=f"hidden {row.hidden}, {row.sequences} x {row.seq_len} tokens, {row.replicas} x {row.tensor} GPUs",
            group="megatron-lm-h100-iterations",
            subject=f"hidden {row.hidden}",
            size=row.sequences,
            nodes=row.replicas * row.tensor // _PER_NODE,
            measured=row.time_s,
            predicted=planned.replayed.iteration_s,
            peak_s=_peak_s(planned),
            profile="h100-80gb",
        )


def sharded_rows() -> Iterator[JudgedRow]:
    """Yield the measured iterations of MPT on up to 16 GPUs, every fourth on up to 128, and all of Llama."""
    table = rows_of_table("mpt_iterations")
    large = [row for row in table if _FEW_GPUS < row.gpus <= _MOST_GPUS][::_EVERY]
    for row in [row for row in table if row.gpus <= _FEW_GPUS] + large:
        arithmetic = "" if row.precision == "bfloat16" else f", {row.precision}"
        yield from _sharded_row(
            row,
            software="llm-foundry",
            compared=f"{arithmetic}, {'' if row.recomputed else 'not '}recomputed",
            planned=lambda row=row: _mpt(row),
            fitted=row.hidden == row.heads * _FITTED_HEAD,
        )
    for row in rows_of_table("llama_iterations"):
        yield from _sharded_row(
            row, software="fms-fsdp", compared="", planned=lambda row=row: _llama(row), fitted=False
        )


def nanotron_rows() -> Iterator[JudgedRow]:
    """Yield the measured iterations of nanotron on one machine, and every sixth on more."""
    table = rows_of_table("nanotron_iterations")
    for row in [row for row in table if row.gpus <= _PER_NODE] + [row for row in table if row.gpus > _PER_NODE][::6]:
        nodes = row.gpus // _PER_NODE
        planned = _nanotron(row)
        yield JudgedRow(
            measure="iterations of Llama, tensors and stages",
            comparison=f"nanotron, H100, {'one machine' if nodes == 1 else 'several machines'}",
            label=f"{row.micro_batch} x {_NANOTRON_LENGTH} tokens, {row.micro_batches} micro-batches, {row.replicas} x "
            f"{row.tensor} x {row.pipeline} GPUs, ZeRO {row.zero}",
            group="nanotron-h100-iterations",
            subject=f"{nodes} machines",
            size=row.micro_batch,
            nodes=nodes,
            measured=row.time_s,
            predicted=planned.replayed.iteration_s,
            peak_s=_peak_s(planned),
            fitted=(nodes, row.pipeline) == _PEERS_FITTED and row.tensor > 1,
            profile="h100-80gb",
        )


def _nanotron(row: Any) -> SimulatedPlan:
    """Return the plan of an iteration of nanotron's Llama, whose gradients are summed in float32.

    Inputs of columns are gathered again (``tp_recompute_allgather``, on where a configuration does not say).

    Args:
        row: ``gpus``, ``tensor``, ``pipeline``, ``replicas``, ``zero`` (0 or 1), ``micro_batch`` in sequences and
            ``micro_batches``.
    """
    sizes = f"layers={_NANOTRON_LAYERS},hidden=2048,heads=32,kv_heads=32,ffn=8192,words=131072"
    batch = row.micro_batch * row.micro_batches * row.replicas
    graph = load_model(f"llama-1b:{sizes},sequence={_NANOTRON_LENGTH}", batch=batch, element_bytes=_HALF)
    words = (
        _degrees(row) + (["sequence"] if row.tensor > 1 else []) + (["zero=1"] if row.zero and row.replicas > 1 else [])
    )
    return _planned(
        graph,
        f"p5:nodes={row.gpus // _PER_NODE}",
        strategy=",".join(words) or "data=1",
        dtype="bfloat16",
        gradient_dtype="float32",
        micro_batches=row.micro_batches if row.micro_batches > 1 or row.pipeline > 1 else None,
        recompute="gathers" if row.tensor > 1 else "none",
        stage_at=_nanotron_stages(row.pipeline, _NANOTRON_LAYERS, head=_HEAD_LAYERS),
        software="nanotron",
    )


def _nanotron_stages(count: int, layers: int, *, head: float) -> tuple[str, ...]:
    """Return the first layers of the later of so many stages, as nanotron divides whole blocks.

    A block counts its parameters, embedding, norm and loss nothing; a stage ends with the block that exceeds its share.

    Args:
        count: Stages.
        layers: Blocks of attention and products.
        head: Parameters of the head over those of such a block.

    Source:
        huggingface/nanotron, src/nanotron/models/base.py, ``build_model``.
    """
    blocks = [(f"model.layers.{layer}.input_layernorm", 1.0) for layer in range(layers)]
    blocks += [("model.norm", 0), ("lm_head", head), ("softmax_per_position", 0)]
    ends, found = np.cumsum([cost for _, cost in blocks]), list[str]()
    for block, end in zip(blocks[1:], ends, strict=False):
        if end > ends[-1] * (len(found) + 1) / count:
            found.append(block[0])
    return tuple(found)


def _degrees(row: Any) -> list[str]:
    """Return the degrees of a row that are more than 1, as words of a strategy."""
    degrees = {"pipeline": row.pipeline, "data": row.replicas, "tensor": row.tensor}
    return [f"{name}={degree}" for name, degree in degrees.items() if degree > 1]


def _sharded_row(row: Any, *, software: str, compared: str, planned: Any, fitted: bool) -> Iterator[JudgedRow]:
    """Yield a measured iteration beside its prediction, if its plan fits in memory; arguments as fields of it."""
    try:
        made = planned()
    except InfeasiblePlanError:
        return
    yield JudgedRow(
        measure=f"iterations of {'MPT' if software == 'llm-foundry' else 'Llama'}",
        comparison=f"{software}, {row.gpu}{compared}",
        label=f"{row.model}, {row.seq_len} x {row.micro_batch} tokens a micro-batch, {row.gpus} GPUs",
        group=f"{software}-{row.gpu}-iterations",
        subject=row.model,
        size=row.micro_batch,
        nodes=row.gpus // _PER_NODE,
        measured=row.time_s,
        predicted=made.replayed.iteration_s,
        peak_s=_peak_s(made),
        fitted=fitted,
        profile=row.gpu,
    )


def _peak_s(planned: SimulatedPlan) -> float:
    """Return the time in which a device at its peak computes its share of a plan's model."""
    return planned.rates.mfu * planned.replayed.expected_s


def _mpt(row: Any) -> SimulatedPlan:
    """Return the plan of an iteration of MPT.

    Args:
        row: ``layers``, ``hidden``, ``heads``, ``seq_len``, ``micro_batch`` in sequences of one GPU, ``micro_batches``,
            ``gpus``, ``gpu`` (a profile), ``precision`` (``bfloat16`` or ``float8``), ``gradient_bytes`` of an element
            as it is summed, ``gathered`` (times that a micro-batch gathers parameters, 1 or 2) and ``recomputed``.
    """
    sizes = f"layers={row.layers},hidden={row.hidden},heads={row.heads},sequence={row.seq_len},words={_MPT_WORDS}"
    sequences = row.micro_batch * row.micro_batches * row.gpus
    graph = load_model(f"gpt2:{sizes},dropout_percent=0", batch=sequences, element_bytes=_HALF)
    return _planned(
        graph,
        _cluster(row.gpu, row.gpus, _CLUSTERS[row.gpu][2]),
        strategy="fsdp" if row.gathered > 1 else "fsdp,gathered",
        dtype=row.precision,
        message_dtype=None if row.gradient_bytes > _HALF else "bfloat16",
        **_SHARDS,
        software="pytorch:flash=1,loss=0",
        recompute="full" if row.recomputed else "none",
        micro_batches=row.micro_batches if row.micro_batches > 1 else None,
    )


def _llama(row: Any) -> SimulatedPlan:
    """Return the plan of an iteration of Llama, whose gradients are summed in bfloat16.

    Args:
        row: ``layers``, ``hidden``, ``heads``, ``key_heads``, ``inner``, ``seq_len``, ``micro_batch`` in sequences of
            one GPU, ``gpus``, ``gpu`` (a profile), ``shards`` (GPUs that parameters are divided over),
            ``machine_gbit_per_s`` (between machines) and ``recomputed`` (share of the blocks).
    """
    sizes = f"layers={row.layers},hidden={row.hidden},heads={row.heads},kv_heads={row.key_heads},ffn={row.inner}"
    sizes += f",words={_LLAMA_WORDS},sequence={row.seq_len},tied=0"
    graph = load_model(f"llama-1b:{sizes}", batch=row.micro_batch * row.gpus, element_bytes=_HALF)
    return _planned(
        graph,
        _cluster(row.gpu, row.gpus, row.machine_gbit_per_s),
        strategy="fsdp" if row.shards == row.gpus else f"hsdp={row.shards}",
        dtype="bfloat16",
        message_dtype="bfloat16",
        **_SHARDS,
        recompute=",".join(f"model.layers.{i}.add" for i in range(round(row.recomputed * row.layers))) or "none",
        software="torch-compile:flash=2",
    )


def _gpt(row: Any, *, recomputed: bool = True) -> SimulatedPlan:
    """Return the plan of an iteration of GPT, with equal stages."""
    sizes = f"layers={row.layers},hidden={row.hidden},heads={row.heads},sequence={row.seq_len},words={_GPT_WORDS}"
    batch = row.micro_batch * row.micro_batches * row.replicas
    graph = load_model(f"gpt2:{sizes},attention_dropout_percent=10", batch=batch, element_bytes=_HALF)
    per_stage = row.layers // row.pipeline
    return _planned(
        graph,
        f"dgx-a100:nodes={-(-row.replicas * row.tensor * row.pipeline // _PER_NODE)}",
        strategy=",".join(_degrees(row)) or "data=1",
        dtype="float16",
        micro_batches=row.micro_batches if row.micro_batches > 1 or row.pipeline > 1 else None,
        stage_at=tuple(f"transformer.h.{per_stage * stage}.ln_1" for stage in range(1, row.pipeline)),
        recompute="full" if recomputed else "none",
        software="megatron-2021",
    )


def _megatron_core(row: Any) -> SimulatedPlan:
    """Return the plan of an iteration of GPT by Megatron-Core, whose gradients are summed in float32.

    Args:
        row: ``layers``, ``hidden``, ``heads``, ``seq_len``, ``tensor``, ``replicas`` and ``sequences`` of a replica.
    """
    sizes = f"layers={row.layers},hidden={row.hidden},heads={row.heads},sequence={row.seq_len}"
    graph = load_model(
        f"gpt2:{sizes},words={_CORE_WORDS},tied=0", batch=row.sequences * row.replicas, element_bytes=_HALF
    )
    split = f",tensor={row.tensor},sequence" if row.tensor > 1 else ""
    return _planned(
        graph,
        f"dgx-h100:nodes={row.replicas * row.tensor // _PER_NODE}",
        strategy=f"data={row.replicas},zero=1{split}",
        dtype="bfloat16",
        gradient_dtype="float32",
        recompute="gathers" if row.tensor > 1 else "none",
        software="megatron-core",
    )


def _layer_s(row: Any) -> float:
    """Return the seconds of a pass of one layer: the first of two blocks, of those that a device computes."""
    one_iteration = {"layers": 2, "micro_batches": 1, "pipeline": 1, "replicas": 1}
    planned = _gpt(SimpleNamespace(**row._asdict() | one_iteration), recomputed="recomputed" in row.phase)
    program, rows = planned.replayed.program, planned.replayed.timeline()
    again = program.recomputed | program.backward
    mine = rows["layer"].str.startswith("transformer.h.0") & rows["kind"].isin(_LAYER_KINDS)
    mine &= again if row.phase.startswith("backward") else ~again
    return float(rows["end_s"][mine].max() - rows["start_s"][mine].min())


def _planned(graph: ComputationGraph, machines: str, **options: Any) -> SimulatedPlan:
    """Return the plan that a command would make with these options."""
    return simulated_plan(graph, load_cluster(machines), optimizer="adam", **options)


def _cluster(gpu: str, gpus: int, machine_gbit_per_s: int) -> str:
    """Return the name of a cluster of so many GPUs, whose machines have links of a bandwidth."""
    cluster, link, usual_gbit_per_s = _CLUSTERS[gpu]
    factor = machine_gbit_per_s / usual_gbit_per_s
    return f"{cluster}:nodes={gpus // _PER_NODE}" + (f",link.{link}.bandwidth_factor={factor:g}" if factor != 1 else "")
