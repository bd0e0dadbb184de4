"""One small page of every kind, for tests that hold for all of them."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas as pd
from synthetic_comparison import make_comparison

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model


@cache
def small_view(where="p100-4x4:nodes=1", model="lenet5", strategy="owt"):
    """LeNet-5 or another small network on a few GPUs."""
    from planner.cost.cost_model import CostModel
    from planner.plan.lowered_plan import lower_plan
    from planner.plan.make_plan import make_plan
    from reports.drawings.plan_view import PlanView

    graph, cluster = load_model(model, batch=64), load_cluster(where)
    plan = make_plan(graph, cluster, strategy=strategy)
    plan = replace(plan, request=replace(plan.request, cluster=where, model=model))
    costs = CostModel(graph, cluster, plan.gradient_sync, plan.batch_norm)
    return PlanView(
        plan=plan, program=lower_plan(plan, graph, cluster), costs=costs, additive_s=plan.additive_s, notes=("a note",)
    )


def sweep_frame():
    """Two models, three sizes and two strategies; one point without a plan."""
    rows = [
        {
            "model": model,
            "cluster": "c",
            "batch": 16 * devices,
            "strategy": strategy,
            "devices": float(devices),
            "expected_s": 1.1e-3 * (1 + i) / devices**0.5,
            "iteration_s": 1e-3 * (1 + i) / devices**0.5,
            "samples_per_s": 1e4,
            "moved_bytes": 1e6 * devices,
            "device_hours_per_million_samples": 0.1 * (1 + i) * devices**0.5,
            "status": "ok",
            "error": "",
            "seconds": 0.1,
        }
        for i, strategy in enumerate(("data", "owt"))
        for model in ("lenet5", "alexnet")
        for devices in (1, 2, 4)
    ]
    none = dict.fromkeys(("expected_s", "iteration_s", "samples_per_s"), np.nan)
    refused = {**rows[0], **none, "status": "refused", "error": "no memory"}
    return pd.DataFrame([*rows, refused])


def _comparison(folder):
    from reports.pages.comparison_page import comparison_html

    made = make_comparison(tasks=400, devices=4)
    more = ("interference", "spread", "pipelining")
    strategies = [replace(s, ladder_s=s.ladder_s | dict.fromkeys(more, s.simulated_s)) for s in made.strategies]
    return comparison_html(replace(made, strategies=tuple(strategies)))


def _timeline(folder):
    from reports.pages.timeline_page import timeline_html

    return timeline_html(small_view(), links=(("plan", "index.html"), ("timeline", "")))


def _plan(folder):
    from reports.pages.plan_page import plan_html

    return plan_html(small_view())


def _sweep(folder):
    from reports.pages.sweep_page import sweep_html

    return sweep_html(sweep_frame(), name="results.sqlite")


def _index(folder):
    from reports.pages.index_page import found_results, index_html

    (folder / "a.html").write_text(_sweep(folder))
    (folder / "b.json").write_text('{"model": "lenet5", "iteration_s": 0.001}')
    return index_html(folder, found_results(folder), page=folder / "index.html")


def _oracle(folder):
    from reports.pages.oracle_page import oracle_html
    from studies.oracle.oracle_request import OracleRequest
    from studies.oracle.projection import oracle

    table = oracle(
        load_model("lenet5", batch=32),
        load_cluster("abci-v100"),
        OracleRequest(dataset="imagenet", devices=(1, 2, 4), batch_per_device=32, epochs=3, budget_gpu_hours=0.5),
    )
    return oracle_html(table)


def _size(folder):
    from reports.pages.decision_pages import size_html
    from studies.size.deadline import fewest_devices
    from studies.size.sized_point import Subject
    from studies.size.training import TrainingRun

    subject = Subject(model="lenet5", batch=0, batch_per_device=64, strategies=("data",))
    run = TrainingRun(samples=60_000, epochs=10)
    return size_html(fewest_devices(subject, "fdr-32x3", run, within_s=5.0, most_devices=9))


def _whatif(folder):
    from reports.pages.decision_pages import whatif_html
    from studies.whatif.scenarios import Scenario, whatif

    cut = Scenario(
        name="node1/nic -> fabric (edr) and node1/nic -> node1/plx0 failed, both ways",
        changes=("link.node1/nic*.failed=1",),
    )
    slow = Scenario(name="slow", changes=("link.edr.bandwidth_factor=0.01",))
    return whatif_html(
        whatif("lenet5", "p100-4x4:nodes=2", batch=64, strategies=("data", "spatial"), scenarios=(cut, slow))
    )


def _streams(folder):
    from reports.pages.streams_page import streams_html
    from studies.streams.schedule_comparison import compare_schedules
    from studies.streams.stream_request import StreamRequest

    return streams_html(compare_schedules(load_model("lenet5", batch=4), StreamRequest(device="p100")))


def _eight_bit(folder):
    from reports.pages.eight_bit_page import eight_bit_html
    from studies.eight_bit.compression_request import CompressionRequest
    from studies.eight_bit.compression_sweep import sweep_compression

    request = CompressionRequest(sub_batches=(1, 2), devices=(4,), link_speeds=(0.5, 1.0), types=("float16",))
    return eight_bit_html(sweep_compression(load_model("lenet5", batch=32), load_cluster("titanx-4"), request))


def _validation(folder):
    from test_validation_page import DEVICES, Validation, make_strategy

    from reports.pages.validation_page import validation_html

    strategies = (make_strategy("data", 0.5, 0.52), make_strategy("model", 0.4, 0.39))
    return validation_html(
        Validation(
            model="small",
            batch=32,
            cluster="lab",
            devices=DEVICES,
            stand_in=False,
            lab=True,
            strategies=strategies,
            refused={},
            environment={"cpu": "some"},
            notes=(),
        )
    )


def _eight_bit_paper(folder):
    from reports.pages.paper_pages import paper_html
    from studies.reproduce.eight_bit_claims import claims
    from studies.reproduce.paper_claims import ComputedValue

    some = claims()[::4]
    return paper_html([ComputedValue(claim, "closed form", 1.1 * float(claim.printed), "a note") for claim in some])


def _reproduce(folder):
    from reports.pages.paper_pages import reproduce_html
    from studies.reproduce.rows import row

    rows = [
        row("DeePa, Table 2: forward of conv1", "12.5", 11.0, "ms", "the paper's cluster is not known"),
        row("DeePa, Table 2: forward of fc1", "0.8", 0.8, "ms"),
        row("DeePa, Fig. 5: speedup over data parallelism", "1.5-2.5", "1.4-2.6", "x"),
        row(
            "DeePa, Fig. 8: factor by which one strategy reduces communication against data and model parallelism",
            "1.1-23.0",
            "1.06-213",
            "x",
        ),
        row("DeePa, Table 5: VGG-16 on 4 GPUs of one node: block 5", "n=1 c=1 h=2 w=2", "n=4 c=1 h=1 w=1", "config"),
        row("DeePa, Table 3: cheapest configuration", "n 4", "n 2, c 2", "config", "the table labels another"),
    ]
    return reproduce_html("deepa", rows)


def _accuracy(folder):
    from executor.accuracy.accuracy_request import AccuracyRequest
    from executor.accuracy.accuracy_result import AccuracyResult, Training
    from reports.pages.accuracy_page import accuracy_html

    request = AccuracyRequest(types=("dynamic-tree",), seeds=3, epochs=2)
    trainings = [
        Training(
            mode=case.mode, type=case.type, seed=seed, losses=[2.0, 1.0 + seed], accuracies=[0.5, 0.9 + 0.01 * seed]
        )
        for case in request.cases()
        for seed in range(3)
    ]
    return accuracy_html(AccuracyResult(request=request, trainings=trainings, trained=1000, tested=200))


def _fidelity(folder):
    from fidelity_rows import make_table

    from reports.pages.fidelity_page import fidelity_html

    return fidelity_html(make_table(groups=2, rows=3))


KINDS = SimpleNamespace(
    comparison=_comparison,
    timeline=_timeline,
    plan=_plan,
    sweep=_sweep,
    index=_index,
    oracle=_oracle,
    size=_size,
    whatif=_whatif,
    streams=_streams,
    eight_bit=_eight_bit,
    eight_bit_paper=_eight_bit_paper,
    validation=_validation,
    accuracy=_accuracy,
    reproduce=_reproduce,
    fidelity=_fidelity,
)
"""By name of the template, what makes a page of it."""


_made = {}


def page_of(kind, folder):
    """Write a page of a kind, which is made once; returns its path."""
    path = folder / f"{kind}.html"
    if kind not in _made:
        _made[kind] = getattr(KINDS, kind)(folder)
    path.write_text(_made[kind], encoding="utf-8")
    return path
