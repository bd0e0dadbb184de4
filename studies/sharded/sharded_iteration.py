"""An iteration of MPT or Llama with sharded parameters: the layers and collectives that it is made of.

Fully sharded data parallelism is no strategy of the planner.  Its iteration is made here of the planner's own prices:
layers as of any imported network, the library's collectives, what these take from the arithmetic beside them, and the
wait for the slowest replica.  Each replica holds a share of the parameters, gradients and states.  For each micro-batch
the replicas gather the parameters of a block before its forward and again before its backward pass (once, where they
keep them), while another block computes, and then sum its gradients, of which each keeps its share::

    library     gather 1  gather 2   gather 3             gather 2    sum 3, gather 1  sum 2       sum 1
    arithmetic            forward 1  forward 2  forward 3  backward 3  backward 2       backward 1

Words, positions and the last norm are a unit of their own, whose transfers nothing hides.  PyTorch converts gradients
to the type in which they are summed, and divides them, in passes of their own.  Parameters may be sharded over the GPUs
of a machine alone; then each sums its share of the gradients with its like in the other machines.

What the runs of MPT had, and the profiles have not, is attention by the first FlashAttention, in Triton: 30 to 50 % of
the peak of A100 forward, 25 to 35 % backward, of which the middles are taken.  It has none of Hopper's own
instructions, without which H100 reaches 62.9 %.  Those of Llama had the second one.  Where products are in eight bits,
only those of blocks are.

Fitted is one number: heads of 64 reach the same share of the peak with the first FlashAttention as those of 128, as the
rows of the two networks with such heads show, which are left out of what is judged.

Source:
    Zhao et al., "PyTorch FSDP", VLDB 2023.  Dao, "FlashAttention-2", 2023, Sec. 1: the first one's shares of the peak.
    Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking", 2024: older
    instructions on H100.  Runs: mosaicml/llm-foundry, scripts/train/benchmarking; foundation-model-stack/fms-fsdp.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.compute.compute_profile import ComputeProfile
from hwprofiles.compute.fused_kernels import FusedEfficiency, elementwise_kernels
from hwprofiles.compute.fused_times import fused_s
from hwprofiles.compute.profile_file import profile_in
from hwprofiles.devices.device import Device
from planner.cost.compute_time import kernel_s
from planner.cost.library_rounds import library_collective_s
from planner.graph.computation_graph import LAYER_PHASES, ComputationGraph
from planner.simulation.rank_spread import late_deviations
from planner.topology.network_routes import ClusterRoutes, routes_of_cluster
from studies.sharded.decoder_networks import llama_network, mpt_network

_CLUSTERS = {
    "a100-40gb": ("dgx-a100", "hdr", 1600),
    "a100-80gb": ("dgx-a100", "hdr", 1600),
    "h100-80gb": ("dgx-h100", "ndr", 3200),
}
"""Clusters of the catalogue by device, the links between their machines, and the Gbit/s of these for a machine."""
_PER_NODE, _BYTES = 8, 2
_FLASH = {"forward": 0.40, "backward": 0.30}
"""Shares of the peak that the first FlashAttention reaches."""
_HEAD_EXPONENT, FITTED_HEAD = 0.0, 64
"""Exponent of the head size in these shares, and the size of the heads whose rows it was fitted to."""
_OLDER_INSTRUCTIONS = {"h100-80gb": 0.629}
"""Share of the peak that a device reaches with the instructions of the one before."""
_DIVIDED = 2
"""Accesses of a gradient to divide it by a share of the replicas before it is summed."""
_MOST = 0.9
"""Largest share of a device that messages take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What the time of an iteration depends on."""

    graph: ComputationGraph
    """The network with one block."""
    layers: int
    """Blocks."""
    micro_batches: int
    gpus: int
    shards: int
    """GPUs that the parameters are sharded over."""
    gpu: str
    """Profile of the devices."""
    machine_gbit_per_s: int
    """Bandwidth of a machine's links to others."""
    eight_bits: bool
    """Whether the products of blocks are in eight bits."""
    gradient_bytes: int
    """Bytes of an element as gradients are summed."""
    gathered: int
    """Times that a micro-batch gathers the parameters of a block."""
    recomputed: float
    """Share of the blocks that are computed again for their backward pass."""
    older_attention: bool
    """Whether attention is the first FlashAttention."""

    @property
    def profile(self) -> ComputeProfile:
        """The devices."""
        return _profile(self.gpu, "bfloat16", self.older_attention)

    @property
    def routes(self) -> ClusterRoutes:
        """Routes of the machines."""
        return _routes(self.gpu, self.gpus // _PER_NODE, self.machine_gbit_per_s)


class _Passes(NamedTuple):
    """Seconds of one device for a micro-batch."""

    forward_s: float = 0.0
    backward_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Messages:
    """Transfers of parameters or gradients, and the passes that prepare them."""

    time_s: float
    """Seconds if nothing else ran."""
    accessed_bytes: float
    """Bytes that a device reads and writes for them."""

    def then(self, others: "_Messages") -> "_Messages":
        """Return these and others, one after another."""
        return _Messages(self.time_s + others.time_s, self.accessed_bytes + others.accessed_bytes)


def mpt_iteration_s(row: Any) -> float:
    """Return the predicted seconds of an iteration of MPT.

    Args:
        row: ``layers``, ``hidden``, ``heads``, ``seq_len``, ``micro_batch`` in sequences of one GPU, ``micro_batches``,
            ``gpus``, ``gpu`` (a profile), ``precision`` (``bfloat16`` or ``float8``), ``gradient_bytes`` of an element
            as it is summed, ``gathered`` (times that a micro-batch gathers parameters, 1 or 2) and ``recomputed``.
    """
    run = _Run(
        graph=mpt_network(layers=1, hidden=row.hidden, heads=row.heads, seq_len=row.seq_len, batch=row.micro_batch),
        layers=row.layers,
        micro_batches=row.micro_batches,
        gpus=row.gpus,
        shards=row.gpus,
        gpu=row.gpu,
        machine_gbit_per_s=_CLUSTERS[row.gpu][2],
        eight_bits=row.precision == "float8",
        gradient_bytes=row.gradient_bytes,
        gathered=row.gathered,
        recomputed=row.recomputed,
        older_attention=True,
    )
    return _iteration_s(run)


def llama_iteration_s(row: Any) -> float:
    """Return the predicted seconds of an iteration of Llama, whose gradients are summed in bfloat16.

    Args:
        row: ``layers``, ``hidden``, ``heads``, ``key_heads``, ``inner``, ``seq_len``, ``micro_batch`` in sequences of
            one GPU, ``gpus``, ``gpu`` (a profile), ``shards`` (GPUs that parameters are sharded over),
            ``machine_gbit_per_s`` (between machines) and ``recomputed`` (share of the blocks).
    """
    graph = llama_network(
        layers=1,
        hidden=row.hidden,
        heads=row.heads,
        key_heads=row.key_heads,
        inner=row.inner,
        seq_len=row.seq_len,
        batch=row.micro_batch,
    )
    run = _Run(
        graph=graph,
        layers=row.layers,
        micro_batches=1,
        gpus=row.gpus,
        shards=row.shards,
        gpu=row.gpu,
        machine_gbit_per_s=row.machine_gbit_per_s,
        eight_bits=False,
        gradient_bytes=_BYTES,
        gathered=2,
        recomputed=row.recomputed,
        older_attention=False,
    )
    return _iteration_s(run)


def _iteration_s(run: _Run) -> float:
    """Return the seconds of an iteration."""
    graph = run.graph
    phases_s = [_phases_s(run, index) for index in range(len(graph.layers))]
    block, ends = (_passes_s(run, phases_s, in_block=inside) for inside in (True, False))
    count, others = (_parameters(graph, in_block=inside) for inside in (True, False))
    gathered, reduced = _gathered(count, run), _reduced(count, run)
    forward_s = _beside_s(block.forward_s, gathered, run)
    backward_s = _beside_s(block.backward_s, gathered.then(reduced) if run.gathered > 1 else reduced, run)
    hidden_by_nothing = (gathered, reduced, _gathered(others, run), _reduced(others, run))
    batch_s = run.layers * (forward_s + backward_s) + sum(ends) + sum(each.time_s for each in hidden_by_nothing)
    updates_s = (
        phase_s["update"] * (run.layers if _is_in_block(layer.name) else 1)
        for layer, phase_s in zip(graph.layers, phases_s, strict=True)
    )
    return float(run.micro_batches * batch_s + sum(updates_s) / run.shards)


def _phases_s(run: _Run, index: int) -> dict[str, float]:
    """Return the seconds of a layer by phase, as the planner prices it."""
    graph, layer = run.graph, run.graph.layers[index]
    in_eight = run.eight_bits and layer.operation.kind == "matrix_product" and _is_in_block(layer.name)
    profile = _profile(run.gpu, "float8", run.older_attention) if in_eight else run.profile
    part = {dim: np.array([float(size)]) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
    times = dict.fromkeys(LAYER_PHASES, 0.0)
    for phase in LAYER_PHASES:
        if graph.has_phase(index, phase):
            times[phase] = float(kernel_s(profile, graph.name, layer, phase, part, graph.element_bytes)[0])
    return times


def _passes_s(run: _Run, phases_s: list[dict[str, float]], *, in_block: bool) -> _Passes:
    """Return the time of the block, or of what is before and behind it, on the slowest replica."""
    forward_s = backward_s = 0.0
    for layer, times in zip(run.graph.layers, phases_s, strict=True):
        if _is_in_block(layer.name) == in_block:
            forward_s += times["forward"]
            backward_s += times["activation_gradient"] + times["weight_gradient"]
            backward_s += times["forward"] * run.recomputed if in_block else 0.0
    late = 1.0 + _device(run.gpu).step_spread * late_deviations(run.gpus)
    return _Passes(late * forward_s, late * backward_s)


def _parameters(graph: ComputationGraph, *, in_block: bool) -> int:
    """Return the parameters of the block, or of what is before and behind it."""
    return sum(layer.parameter_count for layer in graph.layers if _is_in_block(layer.name) == in_block)


def _is_in_block(name: str) -> bool:
    """Return whether a layer is one of a block's."""
    return name.startswith("blocks.")


def _beside_s(arithmetic_s: float, messages: _Messages, run: _Run) -> float:
    """Return the seconds of arithmetic and messages that begin together.

    Both run at 1 / (1 + s) while messages take a share s of the device: ``planner.simulation.interference_use``.
    """
    channels = _device(run.gpu).communication_channels / run.profile.multiprocessors
    share = min(channels + messages.accessed_bytes / messages.time_s / run.profile.memory_bytes_per_s, _MOST)
    return max(arithmetic_s, messages.time_s) + share * min(arithmetic_s, messages.time_s)


def _gathered(parameters: int, run: _Run) -> _Messages:
    """Return the gathering of parameters, of which what is sent is read, and what is received is written."""
    size_bytes, members = float(_BYTES * parameters), tuple(range(run.shards))
    return _Messages(_collective_s(run, "all-gather", members, size_bytes), 2 * size_bytes * (1 - 1 / run.shards))


def _reduced(parameters: int, run: _Run) -> _Messages:
    """Return the sums of gradients, of which what is added is read once more, behind passes that convert and divide.

    Groups of GPUs that each hold all shards sum these over the groups.
    """
    size_bytes, groups = float(run.gradient_bytes * parameters), run.gpus // run.shards
    converted = _BYTES + run.gradient_bytes if run.gradient_bytes > _BYTES else 0
    passed_bytes = _DIVIDED * size_bytes + converted * parameters
    passes = elementwise_kernels(elements=np.array([passed_bytes]), accesses=1.0, element_bytes=1)
    passed = _Messages(float(fused_s(run.profile, passes)[0]), passed_bytes)
    summed_s = _collective_s(run, "reduce-scatter", tuple(range(run.shards)), size_bytes)
    summed = passed.then(_Messages(summed_s, 3 * size_bytes * (1 - 1 / run.shards)))
    if groups == 1:
        return summed
    shard_bytes = size_bytes / run.shards
    over_groups_s = _collective_s(run, "all-reduce", tuple(range(0, run.gpus, run.shards)), shard_bytes)
    return summed.then(_Messages(over_groups_s, 5 * shard_bytes * (1 - 1 / groups)))


@lru_cache
def _profile(name: str, arithmetic: str, older_attention: bool) -> ComputeProfile:
    """Return a device, which may compute attention by the first FlashAttention."""
    profile, older = profile_in(name, arithmetic), _OLDER_INSTRUCTIONS.get(name, 1.0)
    attention = {
        ("attention", phase): FusedEfficiency(ceiling=share * older, head_exponent=_HEAD_EXPONENT)
        for phase, share in _FLASH.items()
    }
    return replace(profile, fused={**profile.fused, **attention}) if older_attention else profile


@lru_cache
def _device(gpu: str) -> Device:
    """Return a device of the cluster, for what the library and ranks take there."""
    return load_cluster(_CLUSTERS[gpu][0]).devices[0]


def _collective_s(run: _Run, collective: str, devices: tuple[int, ...], size_bytes: float) -> float:
    """Return the seconds of a collective as the machines' library runs it."""
    return float(library_collective_s(run.routes, collective, devices, np.array(size_bytes)))


@lru_cache
def _routes(gpu: str, nodes: int, machine_gbit_per_s: int) -> ClusterRoutes:
    """Return the routes of so many machines."""
    cluster, link, usual_gbit_per_s = _CLUSTERS[gpu]
    factor = machine_gbit_per_s / usual_gbit_per_s
    return routes_of_cluster(load_cluster(f"{cluster}:nodes={nodes},link.{link}.bandwidth_factor={factor:g}"))
