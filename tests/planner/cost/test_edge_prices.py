"""Prices and numbers of messages of single strategies, against the tables and the lowered program."""

import re
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from plans import cluster_of, program_of, questions

from groundwork.errors import InfeasiblePlanError
from planner.cost.cost_model import CostModel
from planner.lowering.program import KINDS
from planner.models.registry import load_model
from planner.plan.lowered_plan import lowered
from planner.simulation import transfer_pricing as transfer_prices
from planner.simulation.additive_cost import additive_s
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.topology import network_routes as network
from simulator.graph import memory_need


@settings(max_examples=9)
@given(questions())
def test_message_by_message_equals_the_tables(question):
    """Eq. 1 of random strategies: in bulk with all routes, and with those of the messages only."""
    model, strategy = question
    expected_s = additive_s(model, strategy)
    with patch.object(network, "_TABLE_DEVICES", 0):
        few = CostModel(model.graph, model.cluster, model.gradient_sync)
        few.network = network.ClusterRoutes(model.cluster)
        assert not few.network.has_tables
        assert additive_s(few, strategy) == pytest.approx(expected_s, rel=1e-9)


@settings(max_examples=9)
@given(questions())
def test_messages_are_counted_before_they_are_lowered(question):
    """At most as many as the program has; short of it by no more than a message a part and direction."""
    model, strategy = question
    spaces = spaces_of(model.graph, strategy, len(model.cluster.devices))
    transfers = np.flatnonzero(program_of(model, strategy).kind == KINDS.index("transfer"))
    counted = sum(model.transfer_times.message_count(spaces, u) for u in range(len(spaces)))
    parts = sum(int(spaces[edge.consumer].parts[0]) for edge in model.graph.edges)
    assert len(transfers) - 2 * parts <= counted <= len(transfers)


def test_too_many_messages_are_refused_with_the_estimate(monkeypatch):
    """Before lowering: what the messages of a replay take, against what is free."""
    model = CostModel(load_model("alexnet", batch=64), cluster_of("dgx-h100", 8))
    strategy = named_strategy("model", model.graph, 8)
    monkeypatch.setattr(transfer_prices, "_FEW", 0)
    assert lowered(model, strategy).size
    monkeypatch.setattr(memory_need, "allocatable_bytes", lambda: 1)
    monkeypatch.setattr("planner.plan.lowered_plan.lower", None)
    with pytest.raises(InfeasiblePlanError, match=r"simulating \d+ transfers an iteration would take about .* GiB"):
        lowered(model, strategy)


def test_more_than_a_few_gigabytes_must_be_allowed(monkeypatch):
    """Whatever is free: the message says the memory, the time and the option, which lets it pass."""
    model = CostModel(load_model("alexnet", batch=768), cluster_of("dgx-h100:nodes=96", 768))
    strategy = named_strategy("owt", model.graph, 768)
    monkeypatch.setattr(memory_need, "allocatable_bytes", lambda: 2**50)
    monkeypatch.setattr("planner.plan.lowered_plan.lower", None)
    option = r"transfers an iteration would .* ([\d.]+) GiB of memory and \d+ s of .* --max-memory-gib (\d+) \.\.\."
    with pytest.raises(InfeasiblePlanError, match=option) as refusal:
        lowered(model, strategy)
    needed, allowed = map(float, re.search(option, str(refusal.value)).groups())
    assert needed <= allowed <= needed + 1

    monkeypatch.setenv(memory_need.MEMORY_LIMIT, f"{allowed:g}")
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        lowered(model, strategy)
