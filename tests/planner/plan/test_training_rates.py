"""Rates in the words of the field against the formulas of the PaLM paper, and memory by kind against its sum."""

import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.compute.profile_file import load_profile
from planner.memory.memory_policy import MemoryPolicy
from planner.memory.peak_memory import peak_by_kind_bytes, peak_memory_bytes
from planner.model_files.model_text import model_text
from planner.models.registry import load_model
from planner.plan.compare_strategies import compare
from planner.plan.make_plan import simulated_plan


def test_the_utilisation_of_a_transformer_is_that_of_the_palm_paper():
    """6 N + 12 L H Q T FLOP a token, in the 12 layers of GPT-2; the table of positions computes no products."""
    graph, cluster = load_model("gpt2", batch=16, element_bytes=2), load_cluster("dgx-a100")
    planned = simulated_plan(graph, cluster, strategy="data", dtype="bfloat16")
    rates, seconds = planned.rates, planned.replayed.expected_s
    flop_per_token = 6 * (graph.parameter_count - 1024 * 768) + 12 * 12 * 768 * 1024

    assert graph.samples_are == "sequences"
    assert rates.tokens_per_s == pytest.approx(16 * 1024 / seconds)
    assert rates.mfu == pytest.approx(rates.tokens_per_s * flop_per_token / (8 * 312e12), rel=0.01)
    assert rates.hfu is None
    assert rates.device_hours_per_million_samples == pytest.approx(8 * seconds / 16 * 1e6 / 3600)


def test_recomputation_counts_in_the_utilisation_of_the_hardware_alone():
    """Of three passes' FLOP a fourth is added where all layers but the last are computed again."""
    graph, cluster = load_model("vgg16", batch=32), load_cluster("titanx-4")
    planned = simulated_plan(graph, cluster, strategy="data", recompute="segments")
    again = {
        planned.replayed.program.graph.layers[i].name
        for i in planned.replayed.program.layer[
            planned.replayed.program.recomputed & planned.replayed.program.is_compute
        ]
    }
    flop = {layer.name: layer.forward_flop() for layer in graph.layers}
    peak = load_profile("titanx-nervana")
    available = 4 * peak.peak_flop_per_s / peak.sustained_clock * planned.replayed.expected_s

    assert planned.rates.mfu == pytest.approx(3 * sum(flop.values()) / available)
    assert planned.rates.hfu == pytest.approx((3 * sum(flop.values()) + sum(flop[name] for name in again)) / available)
    assert planned.rates.mfu < planned.rates.hfu < planned.rates.mfu * 4 / 3
    assert planned.rates.tokens_per_s is None


@pytest.mark.parametrize(
    ("model", "word", "tokens"),
    [("bert-base", "sequences", 128), ("conv1d", "samples", 0), ("vit-b16", "images", 0), ("cosmoflow", "images", 0)],
)
def test_samples_are_what_the_layers_read(model, word, tokens):
    graph = load_model(model, batch=2)
    assert (graph.samples_are, graph.tokens_per_sample) == (word, tokens)
    assert graph.with_batch(4).tokens_per_sample == tokens


def test_a_model_file_may_say_how_many_tokens_a_sample_has(tmp_path):
    text = model_text(load_model("conv1d", batch=2)).replace("data:", "tokens_per_sample: 500\ndata:", 1)
    path = tmp_path / "speech.yaml"
    path.write_text(text)
    graph = load_model(str(path), batch=4)

    assert (graph.samples_are, graph.tokens_per_sample, graph.batch) == ("sequences", 500, 4)
    assert "tokens_per_sample: 500\n" in model_text(graph)
    path.write_text(text.replace("sample: 500", "sample: -1"))
    with pytest.raises(ConfigError, match="tokens_per_sample must be a whole number >= 0, got -1"):
        load_model(str(path), batch=4)


@pytest.mark.parametrize(("optimizer", "states"), [("sgd", 0), ("momentum", 1), ("adam", 2)])
def test_kinds_of_memory_add_up_to_the_peak(optimizer, states):
    graph, cluster = load_model("alexnet", batch=64), load_cluster("titanx-4")
    program = simulated_plan(graph, cluster, strategy="data").replayed.program
    policy = MemoryPolicy(optimizer=optimizer)
    kinds = peak_by_kind_bytes(program, policy)

    assert list(kinds) == ["parameters", "gradients", "optimizer_state", "activations", "buffers"]
    assert sum(kinds.values()) == pytest.approx(peak_memory_bytes(program, policy).max())
    assert kinds["parameters"] == 4 * graph.parameter_count
    assert kinds["optimizer_state"] == pytest.approx(states * kinds["parameters"], rel=1e-5)
    assert min(kinds.values()) >= 0


@pytest.mark.parametrize(("cluster", "batch"), [("dgx-a100", 512), ("p100-4x4", 64)])
def test_a_utilisation_above_the_peak_is_explained(cluster, batch):
    graph, machines = load_model("vgg16", batch=batch), load_cluster(cluster)
    planned = simulated_plan(graph, machines, strategy="data")
    compared = compare(graph, machines, ["data", "owt"])
    for notes, above in (
        (planned.plan.notes, planned.rates.mfu > 1),
        (compared.notes, any(each.rates.mfu > 1 for each in compared.strategies)),
    ):
        assert sum(note.startswith("MFU above 100 %: ") for note in notes) == above == (cluster == "dgx-a100")
