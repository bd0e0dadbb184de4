"""Words of recomputation, against what the papers say that each keeps."""

import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.registry import load_model
from planner.parallel.micro_batches import WHOLE_BATCH
from planner.parallel.recomputation import recompute_of
from planner.parallel.strategies import named_strategy
from planner.plan.lowered_plan import lowered


def peak_bytes(layers, batch):
    graph = load_model(f"gpt2:layers={layers},hidden=128,heads=4,sequence=64,words=512", batch=batch)
    model = CostModel(graph, load_cluster("dgx-a100"), "ring")
    again = recompute_of(graph, "full", WHOLE_BATCH)
    return peak_memory_bytes(lowered(model, named_strategy("data", graph, 1), recompute=again))[0]


def test_full_recomputation_keeps_the_input_of_each_block():
    # Korthikanti et al., 2023, Sec. 5: sbh elements a block in place of some 34 sbh; differences leave out all else
    grown = [peak_bytes(layers, 1024) - peak_bytes(layers, 512) for layers in (4, 8)]
    assert grown[1] - grown[0] == 4 * 512 * 64 * 128 * 4


def test_full_recomputation_needs_blocks():
    with pytest.raises(ConfigError, match=r"recompute=full must have blocks .* vgg16 has none"):
        recompute_of(load_model("vgg16", batch=8), "full", WHOLE_BATCH)
