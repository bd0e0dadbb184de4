"""Words of recomputation, against what the papers say that each keeps."""

import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.cost.software import software_of
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.registry import load_model
from planner.plan.lowered_plan import lowered
from planner.strategies.micro_batches import WHOLE_BATCH
from planner.strategies.named_strategies import named_strategy
from planner.strategies.recomputation import recompute_of

HIDDEN, HEADS, POSITIONS = 128, 4, 64
NOT_ACTIVATIONS = ("parameters", "optimizer state", "parameter gradients")


def activation_bytes(layers, batch, recompute, *, strategy="data", devices=1, software="ideal"):
    """Bytes of activations of a GPT-2 of 16-bit elements that drops hidden values and weights of attention."""
    sizes = f"hidden={HIDDEN},heads={HEADS},sequence={POSITIONS},words=512,attention_dropout_percent=10"
    graph = load_model(f"gpt2:layers={layers},{sizes}", batch=batch, element_bytes=2)
    model = CostModel(graph, load_cluster("dgx-a100"), "ring", conditions=Conditions(software=software_of(software)))
    again = recompute_of(graph, recompute, WHOLE_BATCH)
    program = lowered(model, named_strategy(strategy, graph, devices, model.cluster), recompute=again)
    return peak_memory_bytes(program, without=NOT_ACTIVATIONS)[0]


def test_full_recomputation_keeps_the_input_of_each_block():
    # Korthikanti et al., 2023, Sec. 5: sbh elements a block in place of some 34 sbh; differences leave out all else
    grown = [activation_bytes(layers, 1024, "full") - activation_bytes(layers, 512, "full") for layers in (4, 8)]
    assert grown[1] - grown[0] == 4 * 512 * POSITIONS * HIDDEN * 2


@pytest.mark.parametrize(
    ("recompute", "software", "degree"), [("none", 0, 1), ("none", 0, 4), ("selective", 0, 4), ("none", 2, 4)]
)
def test_blocks_keep_what_the_closed_form_says(degree, recompute, software):
    """Of one device, and of tensor parallelism; scores lie in memory, are computed again, or never lie there.

    Korthikanti et al., 2023, Eq. 1 and 2 and Sec. 5, in bytes: sbh (10 + 24 / t + 5 as / ht), without its last term
    where scores are not kept.  The two norms of a block have a mean and a deviation of each position beside.
    """
    strategy = {"strategy": f"tensor={degree}" if degree > 1 else "data", "devices": degree}
    fewer, more = (
        activation_bytes(layers, 32, recompute, software=f"megatron-2021:flash={software}", **strategy)
        for layers in (2, 6)
    )
    scores = 5 * HEADS * POSITIONS / HIDDEN if recompute == "none" and software == 0 else 0
    statistics = 2 * 2 * 2 / HIDDEN + (HEADS * 2 / HIDDEN / degree if software else 0)
    expected = 32 * POSITIONS * HIDDEN * (10 + 24 / degree + scores / degree + statistics)
    assert (more - fewer) / 4 == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("recompute", "software"), [("gathers", 0), ("gathers", 2), ("selective,gathers", 0)])
def test_blocks_split_by_positions_keep_a_share_of_all(recompute, software):
    """Korthikanti et al., 2023, Eq. 4 and Sec. 5: sbh / t (34 + 5 as / h), as inputs of columns are gathered again."""
    strategy = {"strategy": "tensor=4,sequence", "devices": 4, "software": f"megatron-2021:flash={software}"}
    fewer, more = (activation_bytes(layers, 32, recompute, **strategy) for layers in (2, 6))
    scores = 5 * HEADS * POSITIONS / HIDDEN if recompute == "gathers" and software == 0 else 0
    statistics = 2 * 2 * 2 / HIDDEN + (HEADS * 2 / HIDDEN if software else 0)
    assert (more - fewer) / 4 == 32 * POSITIONS * HIDDEN / 4 * (34 + scores + statistics)


def test_selective_recomputation_needs_attention():
    with pytest.raises(ConfigError, match=r"recompute=selective must have attention, vgg16 has none"):
        recompute_of(load_model("vgg16", batch=8), "selective", WHOLE_BATCH)


def test_full_recomputation_needs_blocks():
    with pytest.raises(ConfigError, match=r"recompute=full must have blocks .* vgg16 has none"):
        recompute_of(load_model("vgg16", batch=8), "full", WHOLE_BATCH)
