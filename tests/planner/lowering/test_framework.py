"""Buckets of frameworks: what they hold, in which order they go, and what they cost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import inception_module, residual_block, star

from groundwork.errors import ConfigError
from planner.compression.settings import compressed_of
from planner.cost.all_reduce import all_reduce_s
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.cost.framework import IDEAL, framework_of
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_request import PlanRequest
from planner.plan.priced_strategy import layer_results
from planner.simulation.additive_cost import additive_s, additive_terms, program_terms
from planner.simulation.program_replay import replay
from planner.strategies.micro_batches import WHOLE_BATCH
from planner.strategies.named_strategies import named_strategy, spaces_of

MODELS = {
    "alexnet": lambda: load_model("alexnet", batch=32),
    "resnet": lambda: load_model("resnet-cifar:depth=20", batch=32),
    "inception": inception_module,
    "block": residual_block,
}
FRAMEWORKS = ("ddp", "ddp:first_mib=0.01,bucket_mib=0.1", "horovod", "horovod:fusion_mib=0.05", "horovod:fusion_mib=0")
UPDATE, COORDINATE = KINDS.index("update"), KINDS.index("coordinate")


def lowered(model, strategy, text, **options):
    """The program of a strategy under a framework, and its configurations."""
    count = len(model.cluster.devices)
    spaces = spaces_of(model.graph, named_strategy(strategy, model.graph, count), count)
    return lower(under(model, text), spaces, **options), spaces


def under(model, text):
    """The costs of the same network under a framework."""
    return replace(model, conditions=Conditions(framework=framework_of(text)))


def sums_of(program):
    """Collectives of gradients, in program order."""
    return [task for task in sorted(program.collectives) if not program.statistics[task]]


def bytes_of(graph, layer):
    return sum(parameter.elements for parameter in graph.layers[layer].parameters) * graph.element_bytes


questions = given(
    name=st.sampled_from(list(MODELS)),
    text=st.sampled_from(FRAMEWORKS),
    count=st.sampled_from([2, 4]),
    strategy=st.sampled_from(["data", "owt"]),
    gradient_sync=st.sampled_from(["ring", "halving", "tree"]),
)


@settings(max_examples=9)
@questions
def test_every_gradient_is_in_one_bucket_in_the_order_in_which_it_is_computed(
    name, text, count, strategy, gradient_sync
):
    model = CostModel(MODELS[name](), star(count), gradient_sync)
    program, _ = lowered(model, strategy, text)
    plain, _ = lowered(model, strategy, "ideal")
    graph, first = model.graph, {}
    for task in sums_of(program):
        first.setdefault(program.layers_of(task), task)
    buckets = list(first)
    held = [layer for bucket in buckets for layer in bucket]
    assert held == list(dict.fromkeys(int(plain.layer[task]) for task in sums_of(plain)))
    assert held == sorted(held, reverse=True)  # these graphs compute gradients in reverse order of the layers
    assert program.moved_bytes == pytest.approx(plain.moved_bytes, rel=1e-12)
    framework = framework_of(text)
    for number, bucket in enumerate(buckets):
        sizes = [bytes_of(graph, layer) for layer in bucket]
        limit = framework.capacity_bytes(number)
        if framework.fits:
            assert len(bucket) == 1 or sum(sizes) <= limit
        else:
            assert sum(sizes[:-1]) < limit
            assert sum(sizes) >= limit or number == len(buckets) - 1
        buffer_bytes = program.collectives[first[bucket]].buffer_bytes
        assert buffer_bytes * len(program.spaces[bucket[0]].devices) / count == pytest.approx(sum(sizes))


@settings(max_examples=9)
@questions
def test_buckets_follow_one_another_and_updates_come_last(name, text, count, strategy, gradient_sync):
    program, _ = lowered(CostModel(MODELS[name](), star(count), gradient_sync), strategy, text)
    schedule = replay(program, iterations=1).schedule
    sums = sums_of(program)
    assert (schedule.start_s[sums[1:]] >= schedule.end_s[sums[:-1]]).all()
    updates = np.flatnonzero(program.kind == UPDATE)
    assert schedule.start_s[updates].min() >= schedule.end_s[sums].max()
    waits = [set(program.after[program.after_start[task] : program.after_start[task + 1]]) for task in updates]
    assert all(sums[-1] in each for each in waits)


@settings(max_examples=9)
@questions
def test_without_overlap_the_terms_add_up(name, text, count, strategy, gradient_sync):
    """Compute and updates of every layer, an all-reduce for every bucket, and what the ranks need to agree."""
    model = CostModel(MODELS[name](), star(count), gradient_sync)
    program, spaces = lowered(model, strategy, text)
    terms = sum(model.node_costs(i, space).compute_s[0] for i, space in enumerate(spaces))
    terms += sum(model.node_costs(i, space).phase_s["update"][0] for i, space in enumerate(spaces))
    for bucket in {program.layers_of(task) for task in sums_of(program)}:
        size = sum(bytes_of(model.graph, layer) for layer in bucket)
        terms += all_reduce_s(model.network, gradient_sync, spaces[bucket[0]], size)[0]
    for producer, edges in enumerate(model.graph.consumers):
        tables = [model.transfer_times.table(edge, spaces[producer], spaces[edge.consumer])[0, 0] for edge in edges]
        terms += max(tables, default=0.0)  # these strategies give all consumers of a tensor one layout
    terms += program.work_s[program.kind == COORDINATE].sum()
    strategies = named_strategy(strategy, model.graph, count)
    assert replay(program, overlap=False, contention=False).iteration_s == pytest.approx(terms, rel=1e-9)
    assert additive_s(under(model, text), strategies) == pytest.approx(terms, rel=1e-9)


def test_ddp_sizes_of_a_large_network():
    """VGG-16's three fully connected layers are larger than a bucket; thirteen convolutions share three buckets."""
    graph = load_model("vgg16", batch=64)
    program, _ = lowered(CostModel(graph, star(4)), "data", "ddp")
    names = [[graph.layers[i].name for i in program.layers_of(task)] for task in sums_of(program)]
    assert names[:3] == [["fc3"], ["fc2"], ["fc1"]]
    assert [len(row) for row in names[3:]] == [3, 5, 5]
    sizes = [program.collectives[task].buffer_bytes / 2**20 for task in sums_of(program)]
    assert all(size >= 25 for size in sizes[1:-1])
    assert program.name(sums_of(program)[3]) == "conv5_1 and 2 more gradient synchronisation over 4"


def test_horovod_agrees_once_a_cycle_and_longer_with_more_ranks():
    graph = load_model("resnet-cifar:depth=20", batch=32)
    counts, lengths = {}, {}
    for cycle_ms in (0.2, 1, 1000):
        program, _ = lowered(CostModel(graph, star(4)), "data", f"horovod:cycle_ms={cycle_ms}")
        counts[cycle_ms] = int((program.kind == COORDINATE).sum())
    assert counts[0.2] > counts[1] > counts[1000] == 1
    for ranks in (2, 4, 8):
        program, _ = lowered(CostModel(graph, star(ranks)), "data", "horovod:cycle_ms=1000,rank_us=100")
        lengths[ranks] = program.work_s[program.kind == COORDINATE].sum()
    assert lengths[4] - lengths[2] == pytest.approx(200e-6)
    assert lengths[8] - lengths[4] == pytest.approx(400e-6)


def test_ideal_is_the_program_without_a_framework():
    model = CostModel(load_model("alexnet", batch=32), star(4))
    program, spaces = lowered(model, "data", "ideal")
    assert program.framework is IDEAL
    assert not program.buckets
    assert np.array_equal(program.after, lower(model, spaces).after)


def test_gradients_take_the_memory_that_they_take_without_buckets():
    model = CostModel(load_model("alexnet", batch=32), star(4))
    peaks = [peak_memory_bytes(lowered(model, "data", text)[0]) for text in ("ideal", "ddp")]
    np.testing.assert_array_equal(*peaks)


def test_bytes_of_a_bucket_count_for_its_layers():
    model = CostModel(load_model("alexnet", batch=32), star(4))
    plain, joined = (lowered(model, "data", text)[0] for text in ("ideal", "ddp:bucket_mib=100000"))
    assert len(sums_of(joined)) < len(sums_of(plain))
    np.testing.assert_allclose(joined.by_layer(joined.size_bytes), plain.by_layer(plain.size_bytes))


def test_messages_of_a_bucket_are_those_of_its_all_reduce():
    model = CostModel(load_model("alexnet", batch=32), star(4))
    whole, steps = (lowered(model, "data", "ddp", collectives=form)[0] for form in ("activity", "steps"))
    assert steps.moved_bytes == pytest.approx(whole.moved_bytes)
    assert replay(steps).iteration_s == pytest.approx(replay(whole).iteration_s, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("dpp", "framework must be one of ideal, ddp, horovod, ps, got 'dpp'; did you mean 'ddp'?"),
        ("ddp:bucket=3", "parameters of framework ddp must be first_mib, bucket_mib, got 'bucket=3'"),
        ("ddp:bucket_mib=-3", "ddp.bucket_mib must be 0 or a number from 1e-09 to 1e+06, got '-3'"),
        ("horovod:cycle_ms=1e-320", "horovod.cycle_ms must be 0 or a number from 1e-09 to 1e+06, got '1e-320'"),
        ("horovod:cycle_ms=soon", "horovod.cycle_ms must be 0 or a number from 1e-09 to 1e+06, got 'soon'"),
        ("ideal:x=1", "parameters of framework ideal must be left out, got 'x=1'"),
    ],
)
def test_unknown_frameworks_are_refused(text, rule):
    with pytest.raises(ConfigError) as refused:
        framework_of(text)
    assert str(refused.value).startswith(rule)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"strategy": "data", "compress_gradients": "dynamic-tree"}, "framework must be ideal where gradients"),
        ({"strategy": "data", "gradient_sync_order": "ready"}, "framework must be ideal where gradient_sync_order"),
        ({"strategy": "data", "sub_batches": 2, "update_each": True}, "framework must be ideal where update_each"),
    ],
)
def test_requests_that_a_framework_cannot_have_are_refused(options, rule):
    with pytest.raises(ConfigError, match=rule):
        PlanRequest(model="alexnet", cluster="titanx-4", batch=32, framework="ddp", **options)


def test_compressed_gradients_have_no_buckets():
    model = CostModel(load_model("alexnet", batch=32), star(4), "direct")
    with pytest.raises(ConfigError, match="framework must be ideal where gradients are compressed, got 'ddp'"):
        lowered(model, "data", "ddp", compressed=compressed_of(model.graph, "direct", gradients="dynamic-tree"))


@pytest.mark.parametrize("text", ["ideal", "ddp:bucket_mib=100000", "horovod"])
def test_terms_of_layers_add_up_to_the_price(text):
    """A bucket's time is divided among its layers; without one it is the layer's own."""
    graph = load_model("alexnet", batch=32)
    model = under(CostModel(graph, star(4)), text)
    program, _ = lowered(model, "data", text)
    strategy = named_strategy("data", graph, 4)
    rows = layer_results(model, strategy, WHOLE_BATCH, program)
    total = sum(row.compute_s + row.gradient_sync_s + row.transfer_s for row in rows)
    assert total == pytest.approx(additive_s(model, strategy), rel=1e-9)
    if text == "ideal":
        for found, expected in zip(program_terms(program), additive_terms(model, strategy), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9)
    else:
        assert all(row.gradient_sync_s > 0 for row in rows if "conv" in row.name or "fc" in row.name)


def test_a_plan_keeps_its_framework():
    graph = load_model("alexnet", batch=32)
    plan = make_plan(graph, star(4), strategy="data", framework="horovod:cycle_ms=5")
    assert plan.request.framework == "horovod:cycle_ms=5"
    plain = make_plan(graph, star(4), strategy="data")
    assert plan.simulated_s > plain.simulated_s
    assert plan.additive_s > plain.additive_s
