"""The 8-bit paper's claims by discrete-event simulation of messages on the links of its two clusters.

The inputs are those of the paper's closed form, the times of Table 4 and the sizes of Table 5, and for the links the
bandwidths and latencies that the text and Table 5 give; nothing is fitted.

Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.devices.device_graph import DeviceGraph
from planner.compression.settings import UNCOMPRESSED, CompressionSettings
from planner.cost.cost_model import CostModel
from planner.lowering.program import KINDS
from planner.models.registry import load_model
from planner.plan.lowered_plan import lowered
from planner.simulation.program_replay import replay
from planner.strategies.micro_batches import micro_batching_of
from planner.strategies.named_strategies import named_strategy
from studies.eight_bit.paper_tables import (
    BASELINES_S,
    BITS,
    DEVICES_PER_MACHINE,
    GRADIENT_S,
    MACHINES,
    PAPER_SAMPLES,
    linear_layers,
    pass_table,
    passes_of,
    product_s,
    read_table,
    row_of,
)
from studies.eight_bit.transfer_graphs import SubBatchGraph, all_to_all_s, in_turn_s, scheme_s, serial_pass_s

_Result = tuple[float, str]
MIB = 2.0**20
_MACHINE = "titanx-4:switch_gbyte_per_s=5.25"
_DEVICES = MACHINES * DEVICES_PER_MACHINE
_BESIDE = tuple(DEVICES_PER_MACHINE * machine + 2 for machine in range(MACHINES))
"""GPU of each machine on the switch of the InfiniBand card."""


def simulated(key: tuple[str, ...]) -> _Result | None:
    """Simulate the claim of a key, with machines that send in turn as in Table 6.

    Returns:
        Our value and a note; None for a claim that is not simulated.
    """
    kind, *words = key
    return _SIMULATED[kind](*words) if kind in _SIMULATED else None


def as_written(key: tuple[str, ...]) -> _Result | None:
    """Simulate a speedup with the overlap that Sec. 2.4 describes: all machines send at once, after the previous pass.

    Returns:
        Our value and a note; None for a claim that is not a speedup.
    """
    if key[0] != "speedup":
        return None
    _, batch, bits, kernels = key
    ours, in_turn = _speedup_by(batch, bits, kernels, scheme_s), _speedup_by(batch, bits, kernels, in_turn_s)
    return ours, (
        f"{100 * (ours / in_turn - 1):+.0f} % against machines in turn: of all sub-batches but the first only the time "
        "beyond the 6.5 ms of the linear layers is exposed, not 31 times the time beyond a product of 1.3 ms"
    )


@cache
def _machine() -> DeviceGraph:
    return load_cluster(_MACHINE)


@cache
def _many() -> DeviceGraph:
    return load_cluster("fdr-32x3")


def _node(which: str) -> _Result:

    kernels = "convnet2" if which == "convnet2" else "nervana"
    iteration_s = machine_iteration_s(_machine(), bits=8 if which == "8" else 32, kernels=kernels)
    note = "a plan by owt with 4 sub-batches and updates after each, with Table 4's times; 5.25 GB/s"
    return 4 * BASELINES_S[kernels] / iteration_s, note


def _all_parameters() -> _Result:
    time_s = all_to_all_s(4 * 60e6, load_cluster("titanx-4"))
    return 1e3 * time_s, "240 MB of each GPU, 7 GB/s; the paper uses their 0.223 GiB as if it were GB"


def _sync(item: str, bits: str) -> _Result:
    line = next(line for line in read_table("table3_communication") if line["item"] == item)
    times = 2 if item.endswith("gradient") else 1
    size = MIB * float(line["transfer_size_mb"]) * int(bits) / 32
    time_s = times * all_to_all_s(size, _machine())
    messages = "12 messages at once on exclusive switch ports" + (", twice" if times == 2 else "")
    return 1e3 * time_s, f"{messages}; the closed form's row explains the difference from the printed time"


def _size(batch: str, bits: str) -> float:
    """Return the bytes of one message, from Table 5."""
    return float(pass_table().message_bytes[row_of(batch), BITS.index(int(bits))])


def _single(batch: str, bits: str) -> _Result:
    time_s = serial_pass_s(_size(batch, bits), _many(), _BESIDE)
    note = "31 messages of each machine; the text's 6 GB/s, where the printed values need 4.5 GB/s"
    if int(batch) > 1024:
        note += "; Table 5's latencies, which are not those that Table 6 implies here"
    return 1e3 * time_s, note


@cache
def _iteration_s(batch: str, bits: str, kernels: str, schedule: Callable[[SubBatchGraph], float]) -> float:
    """Return the time of an iteration up to the end of the linear layers."""
    linear_s = linear_layers().alone_s
    return schedule(
        SubBatchGraph(
            cluster=_many(),
            senders=_BESIDE,
            size_bytes=_size(batch, bits),
            passes=passes_of(batch),
            linear_s=linear_s,
            product_s=product_s(),
            before_s=BASELINES_S[kernels] - linear_s,
        )
    )


def _total(batch: str, bits: str) -> _Result:
    total_s = _iteration_s(batch, bits, "nervana", in_turn_s) - BASELINES_S["nervana"] + linear_layers().alone_s
    return 1e3 * total_s, "32 rounds, a machine's 31 messages in each, beside a product; 6 GB/s"


def _overlap(batch: str, bits: str) -> _Result:
    exposed_ms = _total(batch, bits)[0] - 1e3 * passes_of(batch) * linear_layers().alone_s
    return (
        exposed_ms,
        "the first machine's messages are exposed as a whole, which the printed 31 rounds leave out; 6 GB/s",
    )


def _speedup_by(batch: str, bits: str, kernels: str, schedule: Callable[[SubBatchGraph], float]) -> float:
    iteration_s = _iteration_s(batch, bits, kernels, schedule) + GRADIENT_S
    return _DEVICES * BASELINES_S[kernels] / iteration_s


def _speedup(batch: str, bits: str, kernels: str) -> _Result:
    ours = _speedup_by(batch, bits, kernels, in_turn_s)
    note = "machines send in turn; 6 GB/s and Table 5's latencies, where the printed single passes need 4.5 GB/s"
    if int(batch) > 1024:
        note += "; 31 products of 1.3 ms would take longer than all passes, so each takes a 31st of their time"
    return ours, note


_SIMULATED: dict[str, Callable[..., _Result]] = {
    "node": _node,
    "all_parameters": _all_parameters,
    "sync": _sync,
    "single_pass": _single,
    "full_pass_overlap": _overlap,
    "total": _total,
    "speedup": _speedup,
}
"""Function that simulates a claim, by the first word of its key."""


_COLUMNS = {"forward": "fprop", "activation_gradient": "bprop", "weight_gradient": "update"}
"""Columns of Table 4 by kind of task."""


def machine_iteration_s(cluster: DeviceGraph, *, bits: int, kernels: str = "nervana") -> float:
    """Return the simulated iteration of AlexNet in sub-batches of 128 on one machine, with gradients in 32 bits.

    Linear layers take the rows of Table 4 for a sub-batch on 4 GPUs.  The convolutions take the rest of one GPU's
    iteration, in proportion to their rows; pooling, the loss and compression take no time, as in the paper.

    Args:
        cluster: One machine; there are as many sub-batches as devices.
        bits: Bits of an element of activations and errors in messages, 32 or 8.
        kernels: ``nervana`` or ``convnet2``.

    Source: Dettmers, "8-Bit Approximations ...", Appendix A.1 and Table 4.
    """
    devices = len(cluster.devices)
    graph = load_model("alexnet-3072", batch=PAPER_SAMPLES * devices)
    program = lowered(
        CostModel(graph, cluster, "ps-spread"),
        named_strategy("owt", graph, devices),
        micro_batching=micro_batching_of(graph, devices, update_each=True),
        compressed=UNCOMPRESSED if bits == 32 else CompressionSettings(activations="dynamic-tree"),
    )
    convolutions_s = BASELINES_S[kernels] - linear_layers().alone_s
    rows = {line["layer"]: line for line in read_table("table4_compute")}
    layers, work_s = program.graph.layers, np.zeros(program.size)
    convolution = np.array([layers[i].operation.kind == "convolution" for i in program.layer])
    for task in np.flatnonzero(program.is_compute).tolist():
        layer, column = layers[program.layer[task]], _COLUMNS.get(KINDS[program.kind[task]])
        if column and layer.name in rows:
            prefix = "parallel_" if layer.operation.kind == "linear" else ""
            work_s[task] = 1e-3 * float(rows[layer.name][f"{prefix}{column}_ms"])
    work_s[convolution] *= convolutions_s / work_s[convolution & (program.device == 0)].sum()
    return replay(replace(program, work_s=work_s)).iteration_s
