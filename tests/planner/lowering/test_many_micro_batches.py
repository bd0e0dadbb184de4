"""Lowering of pipelines of many micro-batches: what is the same of all is found once."""

import pytest

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.transfer_time import TransferTimes
from planner.models.registry import load_model
from planner.plan.planning import make_plan


@pytest.mark.parametrize("micro_batches", [2, 16])
def test_regions_are_found_once_an_edge(micro_batches, monkeypatch):
    """Not for every micro-batch again."""
    regions, edges = TransferTimes.regions, []
    monkeypatch.setattr(TransferTimes, "regions", lambda *a: edges.append(a[1]) or regions(*a))
    graph = load_model("lenet5", batch=32)
    make_plan(graph, load_cluster("titanx-4"), strategy="pipeline", micro_batches=micro_batches)
    assert len(edges) == len(set(edges)) > 0
