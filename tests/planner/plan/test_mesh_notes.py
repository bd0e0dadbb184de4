"""What a strategy on meshes leaves undivided is said: devices, products, and parts of unequal size."""

import numpy as np
import pytest

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.compare_strategies import compare
from planner.plan.make_plan import make_plan


def notes_of(model, words):
    return make_plan(load_model(model, batch=8), load_cluster("dgx-a100"), strategy=words).notes


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tensor=8", "products that several devices compute alike: transformer.h.0.attn.c_attn"),  # 12 heads
        ("tensor=4", "4 of 8 devices idle"),
        ("tensor=4", "parts of unequal size, of which the largest sets the time: transformer.wte, lm_head"),
        ("tensor=4", "equal with 50,260 for 50,257 (gpt2:layers=1,words=50260 pads its words)"),
    ],
)
def test_what_is_not_divided_is_said(words, said):
    assert any(said in note for note in notes_of("gpt2:layers=1", words))


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
    words = ("devices idle", "compute alike", "unequal size")
    said = notes_of("llama-1b:layers=1", "tensor=8")
    assert not [note for note in said if any(each in note for each in words)]
    assert not [note for note in notes_of("gpt2:layers=1", "data") if any(each in note for each in words)]


def test_a_comparison_says_it_too():
    graph, cluster = load_model("gpt2:layers=1", batch=8), load_cluster("dgx-a100")
    assert any(
        note.startswith("tensor=4: 4 of 8 devices idle") for note in compare(graph, cluster, ["data", "tensor=4"]).notes
    )
