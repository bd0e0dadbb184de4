"""The paper's 4-GPU iteration as a plan: lowered like any strategy, with the times of the paper's Table 4.

All communication comes from the lowering: samples are gathered before the first linear layer, activations between
the linear layers; errors come back as partial sums, and gradients of the convolutions are synchronised in parts.

Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Table 4.
"""

from dataclasses import replace

import numpy as np

from hwprofiles.devices.device_graph import DeviceGraph
from planner.compression.settings import UNCOMPRESSED, CompressionSettings
from planner.cost.cost_model import CostModel
from planner.lowering.program import KINDS, Program
from planner.models.registry import load_model
from planner.parallel.micro_batches import micro_batching_of
from planner.parallel.strategies import named_strategy
from planner.plan.lowered_plan import lowered
from planner.simulation.program_replay import replay
from studies.eight_bit.paper_tables import BASELINES_S, PAPER_SAMPLES, linear_layers, read_table

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
    return replay(_timed(program, convolutions_s)).iteration_s


def _timed(program: Program, convolutions_s: float) -> Program:
    """Return the program with the times of Table 4 and no others."""
    rows = {line["layer"]: line for line in read_table("table4_compute")}
    layers, work_s = program.graph.layers, np.zeros(program.size)
    convolution = np.array([layers[i].operation.kind == "convolution" for i in program.layer])
    for task in np.flatnonzero(program.is_compute).tolist():
        layer, column = layers[program.layer[task]], _COLUMNS.get(KINDS[program.kind[task]])
        if column and layer.name in rows:
            prefix = "parallel_" if layer.operation.kind == "linear" else ""
            work_s[task] = 1e-3 * float(rows[layer.name][f"{prefix}{column}_ms"])
    work_s[convolution] *= convolutions_s / work_s[convolution & (program.device == 0)].sum()
    return replace(program, work_s=work_s)
