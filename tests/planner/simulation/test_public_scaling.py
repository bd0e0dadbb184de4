"""Speedups over one GPU that others measured, against the rungs of the ladder."""

from functools import cache

import numpy as np
import pytest

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.measured.measured_tables import measured_table
from planner.cost.cost_model import CostModel
from planner.lowering.framework import framework_of
from planner.lowering.lower_strategy import lower
from planner.models.registry import load_model
from planner.parallel.strategies import named_strategy, spaces_of
from planner.simulation.program_replay import replay

MODELS = {"InceptionV3": "inception-v3", "AlexNet": "alexnet"}
ROCE = "p100-4x4:nodes=4,link.edr.bandwidth_factor=0.248"
"""Four Pascal GPUs a server; 25 Gbit/s less headers as a share of the card of that cluster."""


@cache
def seconds(spec, framework, model, batch, count, *, real):
    """Iteration time, with interference and spread or without."""
    graph, cluster = load_model(model, batch=batch * count), load_cluster(spec).take(count)
    spaces = spaces_of(graph, named_strategy("data", graph, count), count)
    program = lower(CostModel(graph, cluster), spaces, framework=framework_of(framework))
    return replay(program, interference=real, spread=real).iteration_s


def rows():
    """Source, cluster, framework, model, samples a GPU, GPUs, and the measured speedup."""
    table = measured_table("tf_benchmarks_2017")
    table = table[table["gpu"].str.contains("K80")]
    alone = table[table["n_gpus"] == 1].set_index(["model", "batch_per_gpu"])["images_per_sec"]
    for row in table[table["n_gpus"] > 2].itertuples():
        speedup = row.images_per_sec / alone[row.model, row.batch_per_gpu]
        yield "k80", "k80-16", "ps", MODELS[row.model], row.batch_per_gpu, row.n_gpus, speedup
    table = measured_table("horovod_scaling")
    alone = table[table["n_gpus"] == 1].set_index(["version", "model"])["images_per_sec"]
    for row in table[table["n_gpus"] > 1].itertuples():
        text = "horovod:cycle_ms=5" + (",fusion_mib=0" if "before Tensor Fusion" in row.version else "")
        speedup = row.images_per_sec / alone[row.version, row.model]
        yield "horovod", ROCE, text, MODELS[row.model], row.batch_per_gpu, row.n_gpus, speedup


def errors(real):
    """Source, GPUs, and relative errors of the predicted speedup, row by row."""
    found = []
    for source, spec, framework, model, batch, count, measured in rows():
        used = framework if real else "ideal"
        speedup = count * seconds(spec, used, model, batch, 1, real=real)
        found.append((source, count, speedup / seconds(spec, used, model, batch, count, real=real) / measured - 1))
    return found


@pytest.fixture(scope="module")
def found():
    return {real: errors(real) for real in (False, True)}


def chosen(found, real, source, counts):
    return np.array([error for name, count, error in found[real] if name == source and count in counts])


def test_ideal_machines_are_always_too_fast(found):
    assert all(error > 0.03 for _, _, error in found[False])


def test_the_spread_of_ranks_is_what_horovod_loses(found):
    """Nothing was fitted to these rows: the spread is assumed, the channels are those of PCIe."""
    ideal, real = (chosen(found, each, "horovod", [16]) for each in (False, True))
    assert np.abs(real).max() < 0.03 < np.abs(ideal).min()


def test_more_boards_lose_what_their_ranks_wait(found):
    """The speed of a board was fitted to two GPUs; four and eight follow."""
    ideal, real = (chosen(found, each, "k80", [4, 8]) for each in (False, True))
    assert np.median(np.abs(real)) < 0.03
    assert np.abs(real).max() < 0.06
    assert np.median(np.abs(real)) < 0.5 * np.median(np.abs(ideal))
    assert abs(real.mean()) < 0.02
