"""Divided storage: messages as ZeRO's paper counts them, memory by its closed forms, gathers ahead of arithmetic."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.cost.software import software_of
from planner.graph.type_roles import DataTypes
from planner.layouts.storage import Storage
from planner.layouts.storage_units import storage_units
from planner.lowering.program import KINDS
from planner.memory.buffers import BUFFERS, MEMORY_KINDS
from planner.memory.memory_policy import MemoryPolicy
from planner.memory.peak_memory import peak_by_kind_bytes, peak_memory_bytes
from planner.models.registry import load_model
from planner.plan.lowered_plan import lowered
from planner.simulation.program_replay import replay
from planner.strategies.degrees import hybrid_of, storage_of
from planner.strategies.micro_batches import MicroBatching
from planner.strategies.named_strategies import named_strategy

DEVICES = 8
GATHER, UPDATE = KINDS.index("gather"), KINDS.index("update")


@cache
def program_of(words, *, micro_batches=1, model="bert-base", recompute=False, software="ideal"):
    """Lower a network on eight GPUs."""
    graph, cluster = load_model(model, batch=32), load_cluster("dgx-a100")
    strategy = named_strategy(words, graph, DEVICES, cluster)
    conditions = Conditions.of(cluster, types=DataTypes.of("float32"), storage=storage_of(words))
    conditions = replace(conditions, software=software_of(software))
    micro = MicroBatching(parts=micro_batches, first=0) if micro_batches > 1 else MicroBatching()
    prices = CostModel(graph, cluster, "library", conditions=conditions)
    return lowered(prices, strategy, micro_batching=micro, check_memory=False)


def buffers(program, kind, *, gathers):
    """Add up the buffers of collectives of one kind: of parameters, or of their gradients."""
    wanted = program.kind == GATHER if gathers else program.syncs_gradients
    return sum(each.buffer_bytes for task, each in program.collectives.items() if wanted[task] and each.kind == kind)


def parameter_bytes(program):
    return 4 * program.graph.parameter_count


@pytest.mark.parametrize("words", ["zero=1", "zero=2"])
def test_gradients_are_scattered_and_parameters_gathered_once(words):
    program = program_of(words)
    assert buffers(program, "reduce-scatter", gathers=False) == pytest.approx(parameter_bytes(program))
    assert buffers(program, "all-gather", gathers=True) == pytest.approx(parameter_bytes(program))
    assert buffers(program, "all-reduce", gathers=False) == 0
    # the first layer of the next iteration waits for its parameters, not for all of them
    assert set(program.kind[program.carried[:, 1]].tolist()) >= {GATHER}


def test_parameters_that_are_divided_are_gathered_for_both_passes():
    program = program_of("fsdp")
    units = storage_units(program.graph, whole=False)
    again = [i for unit in units[1:-1] for i in unit]  # not what lies in no block, nor the last block
    assert buffers(program, "all-gather", gathers=True) == pytest.approx(
        parameter_bytes(program) + 4 * elements(program, again)
    )
    assert buffers(program, "reduce-scatter", gathers=False) == pytest.approx(parameter_bytes(program))


def test_units_are_blocks_and_what_lies_outside():
    graph = load_model("bert-base", batch=8)
    units = storage_units(graph, whole=False)
    assert len(units) == 13
    assert {graph.layers[i].name.split(".")[3] for unit in units[1:] for i in unit} == set(map(str, range(12)))
    assert sum(len(unit) for unit in units) == sum(layer.trains for layer in graph.layers)
    buckets = storage_units(graph, whole=True)
    assert sorted(i for unit in buckets for i in unit) == [i for i, layer in enumerate(graph.layers) if layer.trains]


def test_hybrid_sharding_sums_shards_over_its_groups():
    program = program_of("hsdp=4")
    shares = [each for task, each in program.collectives.items() if program.syncs_gradients[task]]
    scattered = [each for each in shares if each.kind == "reduce-scatter"]
    summed = [each for each in shares if each.kind == "all-reduce"]
    assert {len(each.devices) for each in scattered} == {4}
    assert {len(each.devices) for each in summed} == {2}
    # four shards, each of a quarter of what two groups scatter
    assert sum(each.buffer_bytes for each in summed) == pytest.approx(sum(each.buffer_bytes for each in scattered) / 2)


@pytest.mark.parametrize(
    ("words", "parameters", "gradients", "state"),
    [("data=8", 1, 1, 2), ("zero=1", 1, 1, 2 / 8), ("zero=2", 1, 1 / 8, 2 / 8), ("fsdp", 1 / 8, 1 / 8, 2 / 8)],
)
def test_memory_at_rest(words, parameters, gradients, state):
    """Rajbhandari et al., 2020, Fig. 1, less the units that are whole for a while."""
    program = program_of(words)
    at_peak = peak_by_kind_bytes(program, MemoryPolicy(optimizer="adam"))
    whole = parameter_bytes(program)
    zero = storage_of(words).zero
    units = [4 * elements(program, unit) for unit in storage_units(program.graph, whole=zero < 3)]
    root, others = (units[0], units[1:]) if zero == 3 else (0, units)
    undivided = root + max(map(sum, pairwise([0, *others])))  # the root, and two units that follow each other
    assert at_peak["optimizer_state"] == pytest.approx(state * whole)
    assert most(program, "parameters") == pytest.approx(parameters * whole + (undivided if zero == 3 else 0))
    # what a layer computes is copied into the buffer of its sum: at the peak one of them may be there twice
    at_rest = gradients * whole + (undivided if zero > 1 else 0)
    largest = 4 * max(elements(program, [i]) for i in range(len(program.graph.layers)))
    assert at_rest * (1 - 1e-9) <= most(program, "gradients")
    assert gradients * whole + root <= 1.000001 * at_peak["gradients"] <= at_rest + 1.01 * largest


def test_gathered_parameters_are_all_held():
    """From the forward to the backward pass, beside the shards."""
    program = program_of("fsdp,gathered")
    assert most(program, "parameters") == pytest.approx((1 + 1 / 8) * parameter_bytes(program))


def most(program, word):
    """Most bytes that a device holds of one kind at once."""
    others = [kind for kind in BUFFERS if kind not in MEMORY_KINDS[word]]
    return peak_memory_bytes(program, MemoryPolicy(optimizer="adam"), without=others).max()


def elements(program, layers):
    return sum(p.elements for i in layers for p in program.graph.layers[i].parameters)


def test_updates_take_their_share():
    whole, divided = program_of("data=8"), program_of("zero=1")
    rows = [np.flatnonzero(program.kind == UPDATE) for program in (whole, divided)]
    np.testing.assert_allclose(whole.work_s[rows[0]], 8 * divided.work_s[rows[1]])


def test_gathers_go_two_units_ahead_at_most():
    program = program_of("fsdp")
    times = replay(program, iterations=1)
    start, end = times.schedule.start_s, times.schedule.end_s
    of = times.program_graph.task_of[0]
    blocks = [unit for unit in storage_units(program.graph, whole=False) if unit]
    forward = (program.kind == KINDS.index("forward")) & ~program.backward
    gathers = np.flatnonzero((program.kind == GATHER) & ~program.backward)
    assert len(gathers) == len(blocks)
    for k in range(3, len(blocks)):  # the first unit, what lies in no block, computes at both ends
        before = np.flatnonzero(forward & np.isin(program.layer, blocks[k - 2]))
        assert start[of[gathers[k]]] >= end[of[before]].max() - 1e-12
        own = np.flatnonzero(forward & np.isin(program.layer, blocks[k]))
        assert start[of[own]].min() >= end[of[gathers[k]]] - 1e-12


def test_parameters_are_gathered_under_the_next_iteration_where_software_does_so():
    """NCCL runs one collective after another; the first layers compute once theirs are there."""
    behind, ahead = (replay(program_of("data=8,zero=1", software=f"ideal:ahead={on}")) for on in (0, 1))
    program, graph = ahead.program, ahead.program_graph
    gathers = np.flatnonzero(program.kind == GATHER)
    start_s, end_s = (times[graph.task_of] for times in (ahead.schedule.start_s, ahead.schedule.end_s))
    layers = program.layer[gathers]
    assert (np.diff(layers) > 0).all()
    assert (start_s[:, gathers[1:]] >= end_s[:, gathers[:-1]] - 1e-12).all()
    forward = np.flatnonzero(program.kind == KINDS.index("forward"))
    assert start_s[1:, forward].min() < end_s[:-1, gathers].max()
    for layer, gather in zip(layers, gathers, strict=True):
        reads = forward[program.layer[forward] == layer]
        assert (start_s[1:, reads] >= end_s[:-1, gather, None] - 1e-12).all()
    assert ahead.iteration_s < behind.iteration_s


def test_micro_batches_scatter_each_time_where_gradients_are_divided():
    once, each = program_of("zero=1", micro_batches=4), program_of("zero=2", micro_batches=4)
    count = [np.count_nonzero(program.syncs_gradients) for program in (once, each)]
    assert count[1] == 4 * count[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("zero=4", "zero must be 1, 2 or 3, got 4"),
        ("fsdp,zero=1", "must have one of zero, fsdp and hsdp"),
        ("hsdp=3", "hsdp must divide the 8 replicas, got 3"),
        ("tensor=8,zero=1", "data must be at least 2"),
    ],
)
def test_words_with_mistakes(words, message):
    with pytest.raises(ConfigError, match=message):
        named_strategy(words, load_model("bert-base", batch=32), DEVICES)


def test_words_of_storage():
    assert hybrid_of("tensor=2,zero=1").filled(8).data == 4
    assert hybrid_of("fsdp").storage == Storage(zero=3)
    assert hybrid_of("hsdp=4").storage == Storage(zero=3, group=4)
    assert hybrid_of("fsdp").filled(8).text == "data=8,fsdp"
