"""Lowering of pipelines of many micro-batches: what is the same of all is found once."""

import numpy as np
import pytest

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.transfer_time import TransferTimes
from planner.lowering.program import KINDS
from planner.lowering.task_builder import Tasks
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan


@pytest.mark.parametrize("micro_batches", [2, 16])
def test_regions_are_found_once_an_edge(micro_batches, monkeypatch):
    """Not for every micro-batch again."""
    regions, edges = TransferTimes.regions, []
    monkeypatch.setattr(TransferTimes, "regions", lambda *a: edges.append(a[1]) or regions(*a))
    graph = load_model("lenet5", batch=32)
    make_plan(graph, load_cluster("titanx-4"), strategy="pipeline", micro_batches=micro_batches)
    assert len(edges) == len(set(edges)) > 0


@pytest.mark.parametrize("options", [{"schedule": "zero-bubble"}, {"recompute": "segments"}], ids=str)
def test_tasks_are_made_once_for_all_micro_batches(options, monkeypatch):
    """As often for 16 micro-batches as for 2, and all of these have the same tasks."""
    add, made = Tasks.add, list[int]()
    monkeypatch.setattr(Tasks, "add", lambda tasks, *a, **k: made.append(1) or add(tasks, *a, **k))
    graph, cluster = load_model("lenet5", batch=32), load_cluster("titanx-4")
    calls = []
    for count in (2, 16):
        plan = make_plan(graph, cluster, strategy="pipeline", micro_batches=count, **options)
        made.clear()
        program = lower_plan(plan, graph, cluster)
        calls.append(len(made))
        columns = (program.kind, program.layer, program.device, program.peer, program.part, program.recomputed)
        once = program.kind == KINDS.index("update")
        rows = [
            [tuple(row) for row in np.stack(columns, axis=1)[~once & (program.micro_batch == s)].tolist()]
            for s in range(count)
        ]
        assert all(sorted(row) == sorted(rows[0]) for row in rows[1:])
    assert calls[0] == calls[1] > 0
