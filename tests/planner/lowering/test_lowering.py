"""Programs against brute force: which elements each part reads, who holds them, and who waits for whom."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import cluster_of, inception_module, program_of, random_strategy, residual_block, small_graphs

from groundwork.errors import InfeasiblePlanError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.graph.parameters import Parameter
from planner.layouts.configurations import Configuration
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.operations.normalisation import BatchNorm
from planner.simulation.additive_cost import additive_s
from planner.simulation.program_replay import replay
from planner.strategies.named_strategies import named_strategy
from simulator.collectives.schemes import ALL_REDUCES


def held_box(layer, configuration, part):
    """The box of the output that a part holds: row-major, equal parts."""
    degrees = [configuration.degrees.get(dim, 1) for dim in layer.output.dims]
    at = np.unravel_index(part, degrees)
    steps = [size // degree for size, degree in zip(layer.output.sizes, degrees, strict=True)]
    return [(int(i) * step, (int(i) + 1) * step) for i, step in zip(at, steps, strict=True)]


def reads(layer, slot, axis, box):
    """Indices of one input dimension that the part with this box reads, padding included: the definition."""
    operation, inputs = layer.operation, layer.input_shapes
    everything, kind, mine = range(inputs[slot].sizes[axis]), operation.kind, range(*box[min(axis, len(box) - 1)])
    if axis == 0:
        return set(mine)
    if kind in ("linear", "softmax") or (kind == "global_pooling" and axis > 1):
        return set(everything)
    if axis == 1 and kind == "convolution":
        each_out, each_in = operation.channels // operation.groups, len(everything) // operation.groups
        return {i for i in everything if i // each_in in {o // each_out for o in mine}}
    if axis == 1 and kind == "concat":
        return {o - sum(shape.size("channel") for shape in inputs[:slot]) for o in mine}
    if axis == 1 and kind == "local_response_norm":
        return {o + k for o in mine for k in range(-(operation.size // 2), operation.size // 2 + 1)}
    if axis > 1 and kind in ("convolution", "pooling"):
        kernel, stride, pad = (values[axis - 2] for values in (operation.kernel, operation.stride, operation.pad))
        dilation = operation.dilation[axis - 2] if kind == "convolution" else 1
        return {o * stride - pad + k * dilation for o in mine for k in range(kernel)}
    return set(mine)


def masks(layer, slot, box):
    """Elements of an input that a part reads, and the box around them that is moved; both 0 or 1."""
    shape = layer.input_shapes[slot].sizes
    read, moved = np.ones(shape, dtype=int), np.ones(shape, dtype=int)
    for axis, size in enumerate(shape):
        indices = reads(layer, slot, axis, box)
        line = [i in indices for i in range(size)]
        hull = [min(indices) <= i <= max(indices) for i in range(size)]
        view = [-1 if a == axis else 1 for a in range(len(shape))]
        read, moved = read * np.reshape(line, view), moved * np.reshape(hull, view)
    return read, moved


def rows(program, task):
    return program.after[program.after_start[task] : program.after_start[task + 1]].tolist()


def tasks_of(program, kind, layer):
    """Task of each part."""
    found = np.flatnonzero((program.kind == KINDS.index(kind)) & (program.layer == layer))
    return {int(program.part[task]): int(task) for task in found}


def box_of(program, task, rank):
    pairs = zip(program.region_low[task].tolist(), program.region_high[task].tolist(), strict=True)
    return tuple(pairs)[:rank]


def sent_between(program, producer, backward):
    chosen = (program.kind == KINDS.index("transfer")) & (program.layer == producer) & (program.backward == backward)
    return np.flatnonzero(chosen).tolist()


def check_arrivals(program, strategy, edge):
    """Every element that a part reads is local or arrives once, from the part that holds it; nothing else does."""
    graph = program.graph
    layer, source = graph.layers[edge.consumer], graph.layers[edge.producer]
    configuration, held = strategy[layer.name], strategy[source.name]
    made, used = tasks_of(program, "forward", edge.producer), tasks_of(program, "forward", edge.consumer)
    for part, device in enumerate(configuration.devices):
        read, moved = masks(layer, edge.slot, held_box(layer, configuration, part))
        if not read.any():
            moved[:] = 0
        count, waits = np.zeros_like(read), rows(program, used[part])
        if device in held.devices:
            local = held.devices.index(device)
            own = tuple(slice(*pair) for pair in held_box(source, held, local))
            count[own] += moved[own]
            if moved[own].any():
                assert made[local] in waits
        for task in set(waits) & set(sent_between(program, edge.producer, False)):
            box, holder = box_of(program, task, read.ndim), int(program.part[task])
            assert program.peer[task] == device
            assert program.device[task] == held.devices[holder] != device
            assert rows(program, task) == [made[holder]]
            inside = zip(box, held_box(source, held, holder), strict=True)
            assert all(low <= a < b <= high for (a, b), (low, high) in inside)
            volume = np.prod([b - a for a, b in box])
            assert program.size_bytes[task] == volume * graph.element_bytes
            count[tuple(slice(*pair) for pair in box)] += 1
        assert np.all(count[read > 0] == 1)
        np.testing.assert_array_equal(count, moved)


def check_gradients(program, strategy, producer):
    """Gradients go back over the same boxes, and the producer's parts wait for all that read them."""
    graph = program.graph
    back = sent_between(program, producer, True)
    if not graph.has_gradient(producer):
        assert not back
        return
    there = sent_between(program, producer, False)
    assert sorted((*program_row(program, t), int(program.device[t]), int(program.peer[t])) for t in there) == sorted(
        (*program_row(program, t), int(program.peer[t]), int(program.device[t])) for t in back
    )
    source = graph.layers[producer]
    phases = [phase for phase in ("activation_gradient", "weight_gradient") if graph.has_phase(producer, phase)]
    for phase, (part, device) in product(phases, enumerate(strategy[source.name].devices)):
        waits = rows(program, tasks_of(program, phase, producer)[part])
        behind = set(waits).union(*(rows(program, task) for task in waits if task in back))
        own = tuple(slice(*pair) for pair in held_box(source, strategy[source.name], part))
        for edge in graph.consumers[producer]:
            layer = graph.layers[edge.consumer]
            gradients = tasks_of(program, "activation_gradient", edge.consumer)
            for reader, other in enumerate(strategy[layer.name].devices):
                _, moved = masks(layer, edge.slot, held_box(layer, strategy[layer.name], reader))
                if moved[own].any():
                    assert gradients[reader] in (waits if other == device else behind)


def program_row(program, task):
    return int(program.part[task]), int(program.consumer[task]), *box_of(program, task, 5)


def check_order(program):
    """Acyclic: what a task waits for has a smaller id; nothing goes from a device to itself."""
    waiting = np.repeat(np.arange(program.size), np.diff(program.after_start))
    assert np.all(program.after < waiting)
    assert np.all(np.diff(program.group) >= 0)
    sends = program.kind == KINDS.index("transfer")
    assert np.all(program.device[sends] != program.peer[sends])
    assert np.all(program.size_bytes[sends] > 0)


def replicas(layer, configuration, split):
    """Devices that hold the same parameters: parts with one channel index, or all."""
    degrees = [configuration.degrees.get(dim, 1) for dim in layer.output.dims]
    groups = {}
    for part, device in enumerate(configuration.devices):
        groups.setdefault(int(np.unravel_index(part, degrees)[1]) if split else 0, set()).add(device)
    return sorted(map(sorted, groups.values()))


def messages(gradient_sync, count):
    """Whole buffers that an exchange among so many replicas moves: everyone's to everyone, or the least there is."""
    return (count if gradient_sync == "direct" else 2) * (count - 1)


def check_gradient_sync(program, strategy, i, gradient_sync):
    """Gradients meet in their replica group and nowhere else; updates come after, and the next forward after them."""
    layer = program.graph.layers[i]
    weights, updates = tasks_of(program, "weight_gradient", i), tasks_of(program, "update", i)
    steps = [task for task in program.collectives if program.layer[task] == i]
    assert len(weights) == len(updates) == (len(strategy[layer.name].devices) if layer.parameter_count else 0)
    if not layer.parameter_count:
        assert not steps
        return
    configuration = strategy[layer.name]
    groups = [group for group in replicas(layer, configuration, True) if len(group) > 1]
    found = {tuple(sorted(program.collectives[task].devices)) for task in steps}
    assert found == set(map(tuple, groups))
    shard_bytes = layer.parameter_count * program.graph.element_bytes / configuration.degrees.get("channel", 1)
    moved = sum(program.size_bytes[task] for task in steps)
    assert moved == pytest.approx(sum(messages(gradient_sync, len(group)) for group in groups) * shard_bytes)
    for part, device in enumerate(configuration.devices):
        behind, ahead = set(), [updates[part]]
        while ahead:
            for task in rows(program, ahead.pop()):
                if task not in behind and program.layer[task] == i:
                    behind.add(task)
                    ahead.extend([task] if program.kind[task] == KINDS.index("collective") else [])
        group = next(group for group in replicas(layer, configuration, True) if device in group)
        assert {int(program.device[t]) for t in behind & set(weights.values())} == set(group)
        assert weights[part] in rows(program, updates[part])
        mine = {task for task in steps if device in program.collectives[task].devices}
        assert mine <= behind


def check_program(program, strategy, gradient_sync="ring"):
    check_order(program)
    assert program.names == [program.name(task) for task in range(program.size)]
    for edge in program.graph.edges:
        check_arrivals(program, strategy, edge)
    for i in range(len(program.graph.layers)):
        check_gradients(program, strategy, i)
        check_gradient_sync(program, strategy, i, gradient_sync)
    carried = {(int(task), int(before)) for task, before in program.carried}
    pairs = [
        (tasks_of(program, "forward", i), tasks_of(program, "update", i)) for i in range(len(program.graph.layers))
    ]
    assert carried == {(forward[part], update[part]) for forward, update in pairs for part in update}


@settings(max_examples=20)
@given(small_graphs(), st.integers(1, 6), st.integers(0, 2**32), st.sampled_from(list(ALL_REDUCES)))
def test_programs_move_what_parts_read(graph, count, seed, gradient_sync):
    model = CostModel(graph, cluster_of("p100-4x4", count), gradient_sync)
    strategy = random_strategy(graph, count, np.random.default_rng(seed))

    check_program(program_of(model, strategy), strategy, gradient_sync)


@pytest.mark.parametrize("make", [inception_module, residual_block])
@pytest.mark.parametrize("seed", range(4))
def test_programs_of_branches_move_what_parts_read(make, seed):
    graph = make(batch=4)
    model = CostModel(graph, cluster_of("dgx1-p100", 6))
    strategy = random_strategy(graph, 6, np.random.default_rng(seed))

    check_program(program_of(model, strategy), strategy)


def forward_bytes(program, producer):
    return program.size_bytes[sent_between(program, program.graph.index[producer], False)].sum()


def split(graph, **configurations):
    """Every layer whole on device 0, but for those given as (dimension, devices)."""
    strategy = {v.name: Configuration(dict.fromkeys(v.parallel_dims, 1), (0,)) for v in graph.layers}
    for name, (dim, devices) in configurations.items():
        degrees = dict.fromkeys(graph.layers[graph.index[name]].parallel_dims, 1) | {dim: len(devices)}
        strategy[name] = Configuration(degrees, tuple(devices))
    return strategy


def test_two_consumers_of_one_layout_pay_one_transfer():
    """The 1 x 1 branches of an Inception module ask for the same halves of the samples: 8 x 8 x 8 x 8 x 4 bytes / 2."""
    graph = inception_module()
    model = CostModel(graph, cluster_of("titanx-4", 4))
    halves = ("sample", (0, 1))
    program = program_of(model, split(graph, one=halves, reduce=halves))

    # the pool, whole on device 0, finds all there
    assert forward_bytes(program, "stem") == 8 * 8 * 8 * 8 * 4 / 2
    transfers = sent_between(program, graph.index["stem"], True)
    assert len(transfers) == 1  # gradients of the two are summed where they are made, and go back once
    kinds = sorted(graph.layers[program.layer[task]].name for task in rows(program, transfers[0]))
    assert kinds == ["one", "reduce"]


def test_two_consumers_of_different_layouts_pay_both():
    graph = inception_module()
    model = CostModel(graph, cluster_of("titanx-4", 4))
    whole = 8 * 8 * 8 * 8 * 4
    placed = program_of(model, split(graph, one=("sample", (0, 1)), reduce=("sample", (1, 0))))
    cut = program_of(model, split(graph, one=("sample", (0, 1)), reduce=("height", (0, 1))))
    channels = program_of(model, split(graph, one=("channel", (0, 1)), reduce=("channel", (0, 1))))

    assert forward_bytes(placed, "stem") == forward_bytes(cut, "stem") == whole / 2 + whole / 2
    assert forward_bytes(channels, "stem") == whole  # both need all of it on device 1


def test_a_residual_block_pays_a_halo_but_no_shortcut():
    """Stem, convolution and sum in the same halves of the rows: 3 x 3 windows need one row of the neighbour each."""
    graph = residual_block()
    model = CostModel(graph, cluster_of("titanx-4", 4))
    rows_of = ("height", (0, 1))
    program = program_of(model, split(graph, stem=rows_of, first=rows_of, second=rows_of, sum=rows_of))

    row = 8 * 8 * 8 * 4  # samples, channels, width
    assert forward_bytes(program, "stem") == 2 * row
    assert forward_bytes(program, "first") == 2 * row
    assert forward_bytes(program, "second") == 0


def test_one_layer_may_read_a_tensor_twice():
    """x + x: both slots ask for one layout, so that one transfer serves them."""
    net = ModelBuilder("double", batch=4, image=(2, 4))
    stem = net.conv(4, 1, name="stem")
    net.sum([stem, stem], name="sum")
    net.linear(2, name="fc")
    net.loss()
    graph = net.build()
    model = CostModel(graph, cluster_of("titanx-4", 4))
    strategy = split(graph, sum=("sample", (1, 2)))

    program = program_of(model, strategy)
    check_program(program, strategy)
    assert forward_bytes(program, "stem") == 4 * 4 * 4 * 4


def test_layers_before_the_first_trained_one_have_no_backward_pass():
    net = ModelBuilder("pooled", batch=4, image=(2, 8))
    net.pool("max", 2, name="pool")
    net.conv(4, 1, name="conv")
    net.linear(2, name="fc")
    net.loss()
    graph = net.build()
    program = program_of(CostModel(graph, cluster_of("titanx-4", 2)), named_strategy("spatial", graph, 2))

    backward = {program.name(task) for task in np.flatnonzero(program.backward).tolist()}
    assert not any(name.startswith("pool ") or "conv activation" in name for name in backward)
    assert tasks_of(program, "weight_gradient", graph.index["conv"]).keys() == {0, 1}


class Scaled(BatchNorm):
    """A layer with one number a channel, and three that every part holds."""

    def parameters(self, inputs):
        return Parameter("weight", (inputs[0].size("channel"),)), Parameter("shared", (3,), indices=())


@pytest.mark.parametrize("gradient_sync", ALL_REDUCES)
def test_parameters_that_no_split_divides_are_exchanged_among_all_parts(gradient_sync):
    net = ModelBuilder("scaled", batch=4, image=(4, 8))
    net.add(Scaled(), name="scaled")
    net.linear(2, name="fc")
    net.loss()
    graph = net.build()
    model = CostModel(graph, cluster_of("titanx-4", 4), gradient_sync)
    strategy = named_strategy("data", graph, 4)
    strategy["scaled"] = Configuration({"sample": 2, "channel": 2, "length": 1}, (0, 1, 2, 3))
    program = program_of(model, strategy)

    found = {program.collectives[t].devices: 0.0 for t in program.collectives if program.layer[t] == 0}
    for task in program.collectives:
        if program.layer[task] == 0:
            found[program.collectives[task].devices] += program.size_bytes[task]
    # halves of four numbers go between two replicas each, three numbers among four
    assert found == {(0, 2): 2 * 2 * 4, (1, 3): 2 * 2 * 4, (0, 1, 2, 3): messages(gradient_sync, 4) * 3 * 4}
    for part, device in enumerate(strategy["scaled"].devices):
        waits = rows(program, tasks_of(program, "update", 0)[part])
        own = {program.collectives[t].devices for t in waits if t in program.collectives}
        assert own == {(device % 2, device % 2 + 2), (0, 1, 2, 3)}
    replayed = replay(program, overlap=False, contention=False)
    assert replayed.iteration_s == pytest.approx(additive_s(model, strategy), rel=1e-9)


def test_more_tasks_than_memory_are_refused_before_they_are_made(monkeypatch):
    model = CostModel(load_model("lenet5", batch=16), load_cluster("titanx-4"))
    spaces = model.spaces_of(named_strategy("data", model.graph, 4))
    monkeypatch.setattr("simulator.graph.memory_need.allocatable_bytes", lambda: 10_000)
    said = r"simulating [\d,]+ tasks of 4 devices would take about .* are free: fewer micro-batches, or devices"
    with pytest.raises(InfeasiblePlanError, match=said):
        lower(model, spaces)
