"""Attention of imported networks takes the time that profiles of recent devices have measured."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.compute.compute_profile import MeasuredRow
from hwprofiles.compute.fused_kernels import attention_kernels, elementwise_kernels, norm_kernels
from hwprofiles.compute.fused_times import fused_s
from hwprofiles.compute.profile_file import load_profile
from planner.cost.compute_time import kernel_s
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.cost.software import software_of
from planner.graph.type_roles import DataTypes
from planner.layouts.configurations import mesh_configurations
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.search.mesh_search import mesh_of
from planner.strategies.named_strategies import named_strategy, spaces_of


@pytest.mark.parametrize(("phase", "kernel"), [("forward", "forward"), ("activation_gradient", "backward")])
def test_attention_is_priced_by_its_own_kernel(phase, kernel):
    """GPT-2: twelve heads of 64; two samples a device."""
    graph, cluster = load_model("gpt2", batch=16, element_bytes=2), load_cluster("dgx-h100")
    index = next(i for i, layer in enumerate(graph.layers) if layer.operation.kind == "attention")
    layer, spaces = graph.layers[index], spaces_of(graph, named_strategy("data", graph, 8), 8)
    model = CostModel(graph, cluster, conditions=Conditions(types=DataTypes.of("bfloat16")))
    length, two = layer.output.size("length"), np.full(8, 2.0)
    expected = attention_kernels(
        samples=two,
        heads=np.full(8, 12.0),
        key_heads=np.full(8, 12.0),
        queries=np.full(8, float(length)),
        keys=np.full(8, float(layer.operation.keys)),
        head_size=np.full(8, 64.0),
        causal=True,
        phase=kernel,
    )
    found = model.compute_times.part_s(index, spaces[index])[phase]
    assert found == pytest.approx(fused_s(load_profile("h100-80gb@bfloat16"), expected, kernel))


@pytest.mark.parametrize("parts", [1, 2, 4, 16])
def test_the_last_part_of_a_causal_sequence_sets_the_price(parts):
    """Of k positions in p parts, the pairs of a query and a key before it are counted one by one."""
    graph = load_model("gpt2", batch=2)
    layer = next(layer for layer in graph.layers if layer.operation.kind == "attention")
    keys, held = layer.operation.keys, layer.operation.keys // parts
    part = {"sample": np.array([2.0]), "channel": np.array([768.0]), "length": np.array([float(held)])}
    all_keys = replace(layer.operation, causal=False)
    causal, full = (
        each.fused_kernels("forward", layer.input_shapes, layer.output, part, 2) for each in (layer.operation, all_keys)
    )
    pairs = sum(query + 1 for query in range(keys - held, keys))

    assert causal.flop / full.flop == pytest.approx(pairs / (held * keys), rel=1e-3)
    assert causal.memory_bytes == full.memory_bytes


@pytest.mark.parametrize(("channels", "heads", "key_heads"), [(2048, 32, 8), (512, 8, 2), (128, 2, 1), (64, 1, 1)])
def test_heads_of_keys_that_groups_of_queries_share_are_read_once(channels, heads, key_heads):
    """Llama 3.2 1B: 32 heads of queries, 8 of keys and values, of 64 channels; two bytes an element."""
    graph = load_model("llama-1b", batch=2)
    layer = next(layer for layer in graph.layers if layer.operation.kind == "attention")
    length = layer.output.size("length")
    part = {"sample": np.array([2.0]), "channel": np.array([float(channels)]), "length": np.array([float(length)])}
    found = layer.operation.fused_kernels("forward", layer.input_shapes, layer.output, part, 2)

    assert found.memory_bytes == pytest.approx(2 * 2 * length * 64 * (2 * heads + 2 * key_heads))


def test_norms_are_priced_by_their_own_kernels():
    """BERT on an H200: rows of 768 channels; the backward kernel computes all gradients."""
    graph, profile = load_model("bert-base", batch=4, element_bytes=2), load_profile("h200@bfloat16")
    layer = next(layer for layer in graph.layers if layer.operation.kind == "feature_norm")
    rows, columns = np.array([4.0 * layer.output.size("length")]), np.array([768.0])
    part = {dim: np.array([float(size)]) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
    for phase, kernel in (("forward", "forward"), ("activation_gradient", "backward")):
        expected = fused_s(profile, norm_kernels(rows=rows, columns=columns, phase=kernel), kernel)
        assert kernel_s(profile, "bert-base", layer, phase, part, 2) == pytest.approx(expected, rel=1e-12)
    assert kernel_s(profile, "bert-base", layer, "weight_gradient", part, 2) == 0
    first = kernel_s(profile, "bert-base", layer, "weight_gradient", part, 2, inner=False)
    assert first == kernel_s(profile, "bert-base", layer, "activation_gradient", part, 2)  # nobody else pays for it
    split = part | {"channel": np.array([96.0])}  # reads all channels for its sums, so it is no eighth of the kernel
    assert kernel_s(profile, "bert-base", layer, "forward", split, 2) > 0.5 * kernel_s(
        replace(profile, fused={}), "bert-base", layer, "forward", part, 2
    )


@pytest.mark.parametrize("software", ["ideal", "pytorch"])
def test_configurations_are_priced_together_as_alone(software):
    """Norms and losses that are split in channels, which have other kernels, stand beside whole ones in searches."""
    graph = load_model("bert-base:layers=1,hidden=64,words=64", batch=4)
    conditions = Conditions(software=software_of(software))
    model = CostModel(graph, load_cluster("hgx-h200").take(4), conditions=conditions)
    for i, layer in enumerate(model.graph.layers):
        for space in (model.all_configurations()[i], mesh_configurations(layer, mesh_of(model.cluster))):
            together = model.compute_times.slowest_part_s(i, space)
            for c in range(space.size):
                alone = model.compute_times.slowest_part_s(i, space.alone(c))
                for phase, seconds in together.items():
                    assert seconds[c] == pytest.approx(alone[phase][0], rel=1e-12), layer.name


def test_devices_that_have_not_measured_it_price_it_as_products():
    graph, cluster = load_model("gpt2", batch=16), load_cluster("dgx1-p100")
    index = next(i for i, layer in enumerate(graph.layers) if layer.operation.kind == "attention")
    space = spaces_of(graph, named_strategy("data", graph, 8), 8)[index]
    times = CostModel(graph, cluster).compute_times
    work = graph.layers[index].kernels(
        "forward",
        {
            "sample": np.array([2.0]),
            "channel": np.array([768.0]),
            "length": np.array([float(space.output.size("length"))]),
        },
    )
    assert times.part_s(index, space)["forward"] == pytest.approx(times.profiles[0].time_s(work, phase="forward")[0])


def test_a_measured_time_has_its_dispatch_in_it():
    graph, profile = load_model("lenet5", batch=64), load_profile("v100-16gb")
    assert profile.dispatch_s > 1e-5
    measured = replace(profile, rows={("lenet5", "conv1", "forward"): MeasuredRow(64, 1e-5)})
    layer = graph.layers[graph.index["conv1"]]
    whole = {dim: np.array([float(size)]) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
    assert kernel_s(measured, "lenet5", layer, "forward", whole) == pytest.approx([1e-5])
    assert kernel_s(profile, "lenet5", layer, "forward", whole) >= profile.dispatch_s


def test_what_does_nothing_is_not_dispatched():
    """Dropout that drops nothing takes no time, also where each kernel takes some to begin."""
    net = ModelBuilder("none", batch=4, image=(3, 8, 8))
    for share in (0.0, 0.5):
        net.dropout(share)
    net.linear(2)
    net.loss()
    graph, profile = net.build(), load_profile("v100-16gb")
    whole = {dim: np.array([float(size)]) for dim, size in zip(graph.layers[0].output.dims, (4, 3, 8, 8), strict=True)}
    nothing, something = (kernel_s(profile, "none", layer, "forward", whole)[0] for layer in graph.layers[:2])
    assert (nothing, something) == (0.0, profile.dispatch_s)


@pytest.mark.parametrize("samples", [1, 3])
def test_fused_attention_computes_what_pytorch_counts(samples):
    """Each query of a sample meets the keys of its own sample: two products forward."""
    layer = next(each for each in load_model("gpt2", batch=samples).layers if each.operation.kind == "attention")
    operation = replace(layer.operation, causal=False)
    part = {dim: np.array([float(size)]) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
    found = operation.fused_kernels("forward", layer.input_shapes, layer.output, part, 2)
    one = torch.zeros(samples, 12, layer.output.size("length"), 64, device="meta")
    with FlopCounterMode(display=False) as counter:
        torch.nn.functional.scaled_dot_product_attention(one, one, one)
    assert found.flop == pytest.approx([counter.get_total_flops()])


def test_elementwise_chains_move_what_they_read_and_write():
    """The gate of Llama reads two tensors and writes one; back it also reads both inputs for its derivative."""
    graph, profile = load_model("llama-1b", batch=2, element_bytes=2), load_profile("h100-80gb@bfloat16")
    layer = next(
        layer for layer in graph.layers if layer.operation.kind == "elementwise" and layer.name.endswith("mlp")
    )
    assert (len(layer.input_shapes), layer.operation.saves) == (2, "inputs")
    part = {dim: np.array([float(size)]) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
    elements = np.array([float(np.prod(layer.output.sizes))])
    for phase, kernel, accesses in (("forward", "forward", 3.0), ("activation_gradient", "backward", 5.0)):
        expected = fused_s(profile, elementwise_kernels(elements=elements, accesses=accesses), kernel)
        assert kernel_s(profile, "llama-1b", layer, phase, part, 2) == pytest.approx(expected)
