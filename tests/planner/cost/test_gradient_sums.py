"""Gradients of micro-batches that are added up, against the bytes that kernels read and write."""

from dataclasses import replace

import numpy as np
import pytest
from plans import cluster_of

from hwprofiles.compute.fused_kernels import elementwise_kernels
from hwprofiles.compute.fused_times import fused_s
from planner.cost.cost_model import CostModel
from planner.lowering.program import KINDS
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.registry import load_model
from planner.plan.make_plan import simulated_plan

NETWORK = "llama-1b:layers=1,hidden=512,heads=4,kv_heads=4,ffn=1024,words=1024,sequence=128"


def _program(software, parts, **options):
    graph = load_model(NETWORK, batch=8 * parts, element_bytes=2)
    planned = simulated_plan(
        graph,
        cluster_of("dgx-h100", 1),
        strategy="data=1",
        dtype="bfloat16",
        software=software,
        micro_batches=parts if parts > 1 else None,
        **options,
    )
    return planned.replayed.program, CostModel(
        graph, planned.replayed.program.cluster, conditions=planned.replayed.program.conditions
    ).profiles[0]


def _weight_s(program, layer):
    """Seconds of a layer's weight gradients, by micro-batch."""
    tasks = np.flatnonzero((program.kind == KINDS.index("weight_gradient")) & (program.layer == layer))
    return program.work_s[tasks[np.argsort(program.micro_batch[tasks])]]


@pytest.mark.parametrize(("options", "summed_bytes"), [({}, 2), ({"gradient_dtype": "float32"}, 4)])
@pytest.mark.parametrize(("name", "added"), [("pytorch", [0, 1, 1, 1]), ("nanotron", [1, 1, 1, 1])])
def test_kernels_that_add_read_a_gradient_and_read_and_write_the_sum(name, added, options, summed_bytes):
    """AccumulateGrad of PyTorch keeps the first gradient; buffers that were zero take each."""
    program, profile = _program(name, 4, **options)
    alone, _ = _program("pytorch", 1, **options)
    for layer, row in enumerate(program.graph.layers):
        elements = float(sum(parameter.elements for parameter in row.parameters))
        if not elements:
            continue
        moved = elementwise_kernels(
            elements=np.array([elements * (2 + 2 * summed_bytes)]), accesses=1.0, element_bytes=1
        )
        expected = _weight_s(alone, layer) + np.array(added) * fused_s(profile, moved)
        assert _weight_s(program, layer) == pytest.approx(expected, rel=1e-9), row.name


def test_products_that_add_read_the_sums_where_memory_bounds_them():
    program, profile = _program("ideal", 4)
    more = []
    for layer, row in enumerate(program.graph.layers):
        if row.operation.kind not in ("linear", "matrix_product") or not row.trains:
            continue
        part = {dim: np.array([float(size)]) for dim, size in zip(row.output.dims, row.output.sizes, strict=True)}
        part["sample"] /= 4
        work = row.kernels("weight_gradient", part)
        halved = replace(work, memory_bytes=work.memory_bytes / 2, streamed_bytes=work.streamed_bytes / 2)
        arithmetic_s, traffic_s, _ = profile.terms_s(halved, "weight_gradient")
        with_sums_s = traffic_s * (1 + 2 * row.parameters[0].elements / halved.memory_bytes)
        more.append(float(np.maximum(arithmetic_s, with_sums_s)[0] - np.maximum(arithmetic_s, traffic_s)[0]))
        taken_s = _weight_s(program, layer)
        assert taken_s[1:] - taken_s[0] == pytest.approx(more[-1], rel=1e-6, abs=1e-15), row.name
    assert max(more) > 0


def test_a_buffer_of_sums_is_there_for_the_whole_run():
    """Four bytes a parameter in float32, beside the gradient that is added."""
    program, _ = _program("nanotron", 4, gradient_dtype="float32")
    peak, without = (float(peak_memory_bytes(program, without=names).max()) for names in ((), ("parameter gradients",)))
    counts = [layer.parameter_count for layer in program.graph.layers]
    assert 4 * sum(counts) <= peak - without <= 4 * sum(counts) + 2 * max(counts)


def _divided(software, strategy, **options):
    graph = load_model(NETWORK, batch=32, element_bytes=2)
    planned = simulated_plan(
        graph, cluster_of("dgx-h100", 2), strategy=strategy, dtype="bfloat16", software=software, **options
    )
    program = planned.replayed.program
    return program, CostModel(graph, program.cluster, conditions=program.conditions).profiles[0]


@pytest.mark.parametrize(("options", "moved_bytes"), [({}, 2 * 2), ({"gradient_dtype": "float32"}, 2 + 4 + 2 * 4)])
def test_fully_sharded_gradients_are_converted_and_divided_before_they_are_summed(options, moved_bytes):
    program, profile = _divided("pytorch", "fsdp", **options)
    whole, _ = _divided("pytorch", "data", **options)
    for layer, row in enumerate(program.graph.layers):
        if elements := float(sum(parameter.elements for parameter in row.parameters)):
            moved = elementwise_kernels(elements=np.array([elements * moved_bytes]), accesses=1.0, element_bytes=1)
            more_s = _weight_s(program, layer) - _weight_s(whole, layer)
            assert more_s == pytest.approx(float(fused_s(profile, moved)[0]), rel=1e-9), row.name


def test_replicas_divide_updates_but_not_the_passes_over_gradients():
    """Clipping and zeros take all gradients of float32 in ZeRO 1: 16 bytes a parameter by nanotron's four passes."""
    options = {"gradient_dtype": "float32", "optimizer": "adam"}
    (whole, profile), (divided, _) = (_divided("nanotron", each, **options) for each in ("data", "data=2,zero=1"))
    for layer, row in enumerate(whole.graph.layers):
        if elements := float(sum(parameter.elements for parameter in row.parameters)):
            once_s, half_s = (
                each.work_s[(each.kind == KINDS.index("update")) & (each.layer == layer)][0]
                for each in (whole, divided)
            )
            passes = elementwise_kernels(elements=np.array([16 * elements]), accesses=1.0, element_bytes=1)
            passes_s = float(fused_s(profile, passes)[0])
            assert half_s == pytest.approx((once_s - passes_s) / 2 + passes_s, rel=1e-9), row.name


def test_buffers_that_replicas_divide_take_their_shard_of_a_gradient():
    options = {"gradient_dtype": "float32", "micro_batches": 2}
    (whole, profile), (divided, _) = (_divided("nanotron", each, **options) for each in ("data", "fsdp"))
    for layer, row in enumerate(whole.graph.layers):
        if elements := float(sum(parameter.elements for parameter in row.parameters)):
            added = elementwise_kernels(elements=np.array([(2 + 2 * 4) * elements]), accesses=1.0, element_bytes=1)
            less_s = (_weight_s(whole, layer) - _weight_s(divided, layer)).reshape(2, -1)
            assert less_s == pytest.approx(np.full(less_s.shape, float(fused_s(profile, added)[0]) / 2)), row.name


def test_updates_after_each_micro_batch_add_nothing():
    counts = {}
    for each in (False, True):
        planned = simulated_plan(
            load_model("lenet5", batch=32),
            cluster_of("dgx-h100", 1),
            strategy="data",
            software="pytorch",
            sub_batches=2,
            sub_batch_from="conv1",
            update_each=each,
            framework="ideal",
        ).replayed
        launches = planned.program_graph.launches
        work = planned.program_graph.graph.work[launches >= 0] / planned.program.conditions.software.launch_s
        counts[each] = work.sum() / len(planned.program_graph.task_of)
    tensors = sum(len(layer.parameters) for layer in load_model("lenet5", batch=32).layers)
    assert counts[False] - counts[True] == pytest.approx(tensors)


def test_a_divided_loss_launches_the_kernels_that_it_is_priced_by():
    graph = load_model(NETWORK, batch=8, element_bytes=2)
    found = simulated_plan(
        graph, cluster_of("dgx-h100", 2), strategy="tensor=2", dtype="bfloat16", software="pytorch"
    ).replayed
    loss = len(graph.layers) - 1
    tasks = np.flatnonzero((found.program.layer == loss) & (found.program.kind == KINDS.index("forward")))
    launches = found.program_graph.launches
    work = found.program_graph.graph.work[np.isin(launches, tasks)] / found.program.conditions.software.launch_s
    assert work == pytest.approx(np.full(len(work), 6 + 12))  # six passes over scores, twelve over labels
