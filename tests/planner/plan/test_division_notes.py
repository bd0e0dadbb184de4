"""What a strategy leaves undivided, or divides unequally, is said: devices, products, parts and stages."""

import re
from dataclasses import replace

import numpy as np
import pytest

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.devices.device import MemoryReserve
from planner.lowering.program import KINDS
from planner.models.registry import load_model
from planner.plan.compare_strategies import compare
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan


def notes_of(model, words):
    return make_plan(load_model(model, batch=8), load_cluster("dgx-a100"), strategy=words).notes


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tensor=8", "products that several devices compute alike: transformer.h.0.attn.c_attn"),  # 12 heads
        ("tensor=4", "4 of 8 devices idle"),
        ("tensor=4", "parts of unequal size, of which the largest sets the time: transformer.wte, lm_head"),
        ("tensor=8", "tensor=8 does not divide 12 heads: transformer.h.0.attn"),
        ("tensor=8,sequence", "tensor=8 does not divide 12 heads: transformer.h.0.attn"),
        ("tensor=4", "equal with 50,260 for 50,257 (gpt2:layers=1,words=50260 pads its words)"),
    ],
)
def test_what_is_not_divided_is_said(words, said):
    assert any(said in note for note in notes_of("gpt2:layers=1", words))


def test_keys_shared_by_more_devices_than_have_heads_are_said():
    for words in ("tensor=8", "tensor=8,sequence"):
        (note,) = [note for note in notes_of("llama-1b:layers=1,kv_heads=4", words) if "heads" in note]
        assert note.startswith("tensor=8 does not divide 4 heads of keys: model.layers.0.self_attn")


def test_a_note_names_the_model_with_padded_words():
    (note,) = [note for note in notes_of("gpt2:words=1001,layers=1", "tensor=4") if "unequal" in note]
    assert "equal with 1,004 for 1,001 (gpt2:layers=1,words=1004 pads its words)" in note
    assert not [note for note in notes_of("gpt2:layers=1,words=1004", "tensor=4") if "unequal" in note]


def test_the_last_part_of_masked_positions_has_most_work():
    """Of GPT-2's 1,024 queries, those in the last part have the most scores that no mask leaves out, counted here."""
    for parts, words in ((4, "context=4"), (2, "context=2,tensor=2,sequence"), (8, "context=8")):
        scores = np.tri(1024).sum(axis=1).reshape(parts, -1).sum(axis=1)
        (note,) = [note for note in notes_of("gpt2:layers=1", words) if "causal" in note]
        assert f"over {parts} parts" in note
        said = float(note.partition("last has ")[2].split()[0])
        assert said == pytest.approx(scores[-1] / scores.mean(), rel=1e-3)
    assert not [note for note in notes_of("gpt2:layers=1", "context=4,ulysses") if "causal" in note]
    # attention of separate kernels computes all scores, whatever the mask leaves out of them
    assert not [note for note in notes_of("gpt2:layers=1", "context=4,software=megatron-2021") if "causal" in note]


def test_a_plan_that_divides_all_has_no_notes_on_it():
    words = ("devices idle", "compute alike", "unequal size", "does not divide")
    said = notes_of("llama-1b:layers=1", "tensor=8")
    assert not [note for note in said if any(each in note for each in words)]
    assert not [note for note in notes_of("gpt2:layers=1", "data") if any(each in note for each in words)]


def test_a_comparison_says_it_too():
    graph, cluster = load_model("gpt2:layers=1", batch=8), load_cluster("dgx-a100")
    assert any(
        note.startswith("tensor=4: 4 of 8 devices idle") for note in compare(graph, cluster, ["data", "tensor=4"]).notes
    )


def test_stages_that_memory_keeps_from_being_equal():
    """The first stages hold most micro-batches; the work of each is counted in the lowered program."""
    graph = load_model("gpt2:layers=8,hidden=256,heads=4,words=256,sequence=256", batch=64)
    cluster = load_cluster("dgx-a100")
    words = "pipeline=4,data=2,micro-batches=8"
    for memory_bytes, expected in ((4e8, False), (1.5e8, True)):
        small = [replace(each, memory_bytes=memory_bytes, memory_reserve=MemoryReserve()) for each in cluster.devices]
        machine = cluster.with_devices(small)
        plan = make_plan(graph, machine, strategy=words)
        notes = [note for note in plan.notes if "unequal work" in note]
        assert len(notes) == expected
    program = lower_plan(plan, graph, machine)
    gradients = program.kind <= KINDS.index("weight_gradient")
    work_s = np.bincount(program.device[gradients], program.work_s[gradients]).reshape(4, 2).sum(axis=1)
    said = re.search(r"that of (\S+) has ([\d.]+) times the mean", notes[0])
    assert graph.layers[plan.micro_batching.stages[work_s.argmax()]].name == said[1]
    assert float(said[2]) == pytest.approx(
        work_s.max() / work_s.mean(), rel=0.03
    )  # halves of batches are less efficient
    assert "as memory, gradient synchronisation" in notes[0]
    starts = [graph.layers[start].name for start in plan.micro_batching.stages[1:]]
    chosen = make_plan(graph, machine, strategy="pipeline=4,data=2", micro_batches=8, stage_at=tuple(starts))
    assert chosen.micro_batching == plan.micro_batching
    assert not [note for note in chosen.notes if "unequal work" in note]  # these are whoever chose them


def test_stages_that_no_division_makes_equal():
    """The words of the output layer are its own stage, with most of the work, wherever others begin."""
    graph = load_model("gpt2:layers=3,hidden=256,heads=4,words=50000,sequence=256", batch=16)
    plan = make_plan(graph, load_cluster("dgx-a100"), strategy="pipeline=4")
    (note,) = [note for note in plan.notes if "unequal work" in note]
    assert "as no runs of layers are more equal" in note
    assert graph.layers[plan.micro_batching.stages[-1]].name in re.search(r"that of (\S+) has", note)[1]
