"""The search over hybrids against brute force, its bounds against replays, and what memory forces it to."""

import math
from functools import cache
from itertools import combinations, pairwise

import pytest
from hypothesis import given, strategies as st
from plans import cluster_of, residual_block, star

from groundwork.errors import ConfigError, InfeasiblePlanError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.registry import load_model
from planner.plan.lowered_plan import CostModels, lower_plan, lowered
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan
from planner.plan.plan_request import PlanRequest
from planner.search.hybrid_search import (
    Candidate,
    HybridRequest,
    _Bounds,
    _fullest_stage,
    candidates_of,
    in_order_of,
    mesh_estimate_s,
    search_hybrids,
)
from planner.simulation.additive_cost import additive_s
from planner.simulation.program_replay import replay
from planner.strategies.degrees import hybrid_of
from planner.strategies.named_strategies import named_strategy
from planner.strategies.recomputation import recompute_of

EXPERTS = "mixtral:layers=1,hidden=16,heads=2,kv_heads=2,ffn=24,words=32,sequence=8,experts=4"
QUESTIONS = [
    ("lenet5", 8, "titanx-4", 4, False),
    ("block", 4, "p100-4x4", 8, False),
    ("cosmoflow", 2, "abci-v100", 4, False),
    (EXPERTS, 2, "p100-4x4", 2, True),
]


@cache
def model_and_times(name, batch, spec, count, mesh):
    """A question's costs, and the simulated time of every candidate by its text; infinite where it does not fit."""
    graph = residual_block(batch) if name == "block" else load_model(name, batch=batch)
    model, found = CostModel(graph, cluster_of(spec, count)), {}
    for candidate in candidates_of(model, HybridRequest(mesh=mesh)):
        try:
            strategy, micro_batching = HybridRequest(mesh=mesh).planned(model, candidate)
            ordered = in_order_of(model, candidate.hybrid)
            found[candidate.text] = replay(lowered(ordered, strategy, micro_batching=micro_batching)).iteration_s
        except (ConfigError, InfeasiblePlanError):
            found[candidate.text] = math.inf
    return model, found


@pytest.mark.parametrize(("name", "batch", "spec", "count", "mesh"), QUESTIONS)
def test_the_search_finds_what_brute_force_finds(name, batch, spec, count, mesh):
    model, times = model_and_times(name, batch, spec, count, mesh)

    found = search_hybrids(model, HybridRequest(replays=10**6, mesh=mesh))

    assert len(times) > 10
    assert found.candidates == len(times)
    assert found.simulated_s == pytest.approx(min(times.values()), rel=1e-9)
    assert times[found.candidate.text] == pytest.approx(found.simulated_s, rel=1e-9)
    assert found.rest_s == math.inf
    assert found.replayed < len(times)  # some are pruned


@pytest.mark.parametrize(("name", "batch", "spec", "count", "mesh"), QUESTIONS)
def test_no_replay_is_below_its_bound(name, batch, spec, count, mesh):
    model, times = model_and_times(name, batch, spec, count, mesh)

    words = {word.partition("=")[0] for text in times for word in text.replace(" ", ",").split(",")}
    assert {"expert", "tensor", "context", "sequence", "slicing", "ulysses"} <= words or not mesh
    for candidate in candidates_of(model, HybridRequest(mesh=mesh)):
        assert times[candidate.text] >= candidate.bound_s * (1 - 1e-9)


def test_what_the_bound_of_memory_leaves_out_does_not_fit():
    """Sixteen samples of 512 cubed: those left out are refused one and all."""
    graph, cluster = load_model("cosmoflow:size=512", batch=16), load_cluster("abci-v100")
    model = CostModel(graph, cluster)
    kept = {candidate.hybrid.text for candidate in candidates_of(model)}

    for words in ("data=4", "spatial=2", "data=2,filter=4"):
        assert words not in kept
        with pytest.raises(InfeasiblePlanError):
            make_plan(graph, cluster, strategy=words)


def test_the_answer_is_a_plan_that_is_stored_and_read(tmp_path):
    graph, cluster = load_model("lenet5", batch=8), cluster_of("p100-4x4", 4)
    plan = make_plan(graph, cluster, strategy="hybrid")
    save_plan(plan, tmp_path / "plan.json")

    again = load_plan(tmp_path / "plan.json")

    assert " is the fastest of " in plan.notes[0]
    assert (again.micro_batching, again.configurations) == (plan.micro_batching, plan.configurations)
    assert replay(lower_plan(again, graph, cluster)).iteration_s == pytest.approx(plan.simulated_s)
    assert plan.simulated_s <= make_plan(graph, cluster, strategy="data").simulated_s * (1 + 1e-9)


def test_fewer_replays_say_what_is_left_open():
    model = CostModel(load_model("resnet-cifar:depth=8", batch=4), cluster_of("p100-4x4", 8))

    found = search_hybrids(model, HybridRequest(replays=2))

    assert found.replayed == 2
    assert found.rest_s < found.simulated_s
    assert f"the others take at least {1e3 * found.rest_s:.4g} ms" in found.notes[0]


def test_the_refinement_goes_on_from_the_best_hybrid():
    graph, cluster = load_model("lenet5", batch=8), star(4)
    start = search_hybrids(CostModel(graph, cluster), HybridRequest(stages=False))

    plan = make_plan(graph, cluster, strategy="hybrid", refine=8)

    assert plan.simulated_s <= start.simulated_s * (1 + 1e-9)
    assert plan.origin.startswith(start.candidate.text)
    assert plan.micro_batching.parts == 1


SMALL = "llama-1b:layers=1,hidden=256,heads=8,kv_heads=4,ffn=512,words=512,sequence=64"


@pytest.mark.parametrize(
    "words",
    [
        "hybrid,mesh,zero=1,recompute=selective+gathers",
        "hybrid,mesh,fsdp,micro-batches=4,schedule=gpipe",
    ],
)
def test_what_is_given_holds_for_all_hybrids(words, tmp_path):
    """The answer is a plan with what was given, stored and read; no other hybrid with that was faster."""
    graph, cluster = load_model(SMALL, batch=8, element_bytes=2), cluster_of("dgx-h100", 4)
    plan = make_plan(graph, cluster, strategy=words)
    found = plan.notes[0].partition(" is the fastest of ")[0].partition(" with ")[0]
    given = [f"micro-batches={plan.micro_batching.parts}"] if plan.micro_batching.parts > 1 else []
    given += [word for word in words.split(",") if word.startswith(("recompute", "schedule")) and "pipeline" in found]
    given += [word for word in words.split(",") if word.startswith("recompute") and "pipeline" not in found]
    other = make_plan(graph, cluster, strategy=",".join([found, *given]))
    save_plan(plan, tmp_path / "plan.json")
    again = replay(lower_plan(load_plan(tmp_path / "plan.json"), graph, cluster))
    assert again.iteration_s == pytest.approx(plan.simulated_s, rel=1e-9)
    assert other.simulated_s == pytest.approx(plan.simulated_s, rel=1e-9)
    for usual in ("data=2,context=2", "data=2,tensor=2"):
        stored = [word for word in words.split(",")[2:] if not word.startswith("schedule")]
        assert plan.simulated_s <= make_plan(graph, cluster, strategy=",".join([usual, *stored])).simulated_s * (
            1 + 1e-9
        )


@pytest.mark.parametrize(("storage", "recompute"), [("zero=1", "none"), ("fsdp", "selective,gathers")])
def test_bounds_hold_where_replicas_divide(storage, recompute):
    graph, cluster = load_model(SMALL, batch=8, element_bytes=2), load_cluster("dgx-h100")
    request = PlanRequest(
        model=SMALL, cluster="dgx-h100", batch=8, dtype="bfloat16", optimizer="adam", strategy=f"hybrid,{storage}"
    )
    model, wanted = CostModels(graph, cluster).of(request), HybridRequest(mesh=True, words=storage, recompute=recompute)
    for candidate in candidates_of(model, wanted)[::80]:
        strategy, micro_batching = wanted.planned(model, candidate)
        again = recompute_of(graph, recompute, micro_batching)
        ordered = in_order_of(model, candidate.hybrid)
        program = lowered(ordered, strategy, micro_batching=micro_batching, recompute=again)
        (_, size), *_ = _Bounds(model, recompute).of(candidate.hybrid, [candidate.micro_batches])
        assert size <= peak_memory_bytes(program).max() * (1 + 1e-9), candidate.text
        assert candidate.bound_s <= replay(program).iteration_s * (1 + 1e-9), candidate.text


def test_an_order_of_positions_that_is_found_is_stored(tmp_path):
    """One sample on two devices: its positions are split, in parts of equal work, and the plan names their order."""
    words = "llama-1b:layers=1,hidden=256,heads=8,kv_heads=8,ffn=512,words=512,sequence=8192"
    graph, cluster = load_model(words, batch=1, element_bytes=2), cluster_of("dgx-h100", 2)
    plan = make_plan(graph, cluster, strategy="hybrid", mesh=True)
    assert plan.strategy == "context=2,zigzag"
    assert plan.notes[0].startswith("context=2,zigzag is the fastest of ")
    save_plan(plan, tmp_path / "plan.json")
    again = lower_plan(load_plan(tmp_path / "plan.json"), graph, cluster)
    assert again.graph.zigzag == 2
    assert replay(again).iteration_s == pytest.approx(plan.simulated_s, rel=1e-9)
    assert make_plan(graph, cluster, strategy="context=2,zigzag").simulated_s == plan.simulated_s


@pytest.mark.parametrize("words", ["tensor=4", "expert=4"])
def test_the_estimate_is_eq_1_but_for_what_the_backward_pass_hides(words):
    """Layers that are alike are priced once, with the tensors between them; without replicas nothing is hidden."""
    graph, cluster = load_model(EXPERTS.replace("layers=1", "layers=3"), batch=4), cluster_of("p100-4x4", 4)
    model, hybrid = CostModel(graph, cluster), hybrid_of(words)
    alike = _Bounds(model).split_alike(hybrid)
    assert len(set(alike)) < len(graph.layers) / 2
    estimate_s = mesh_estimate_s(model, Candidate(hybrid=hybrid, micro_batches=1, bound_s=0.0), alike)
    strategy = named_strategy(words, graph, 4, cluster)
    costs = [model.node_costs(i, space) for i, space in enumerate(model.spaces_of(strategy))]
    synced_s = sum(float((each.gradient_sync_s - each.statistics_s)[0]) for each in costs)
    backward_s = sum(float((each.compute_s - each.phase_s["forward"])[0]) for each in costs)
    assert (synced_s > 0) == (words == "expert=4")
    assert estimate_s + min(synced_s, backward_s) == pytest.approx(additive_s(model, strategy), rel=1e-9)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=7), st.integers(1, 3), st.data())
def test_no_division_into_stages_has_less_than_the_bound_of_the_fullest(layers, stages, data):
    """Bytes of parameters and of tensors of each layer, and micro-batches that each stage holds: every division."""
    in_flight = data.draw(st.lists(st.integers(1, 5), min_size=stages, max_size=stages))
    fullest = [
        max(
            sum(p + held * a for p, a in layers[begin:end])
            for held, (begin, end) in zip(in_flight, pairwise([0, *cuts, len(layers)]), strict=True)
        )
        for cuts in combinations(range(1, len(layers)), stages - 1)
    ]
    parameters, tensors = (float(sum(column)) for column in zip(*layers, strict=True))
    assert _fullest_stage(parameters, tensors, in_flight) <= min(fullest) * (1 + 1e-12)


def test_bad_questions_are_one_line():
    model = CostModel(load_model("lenet5", batch=8), star(2))
    with pytest.raises(ConfigError, match=r"replays must be >= 1, got 0$"):
        search_hybrids(model, HybridRequest(replays=0))
    with pytest.raises(ConfigError, match=r"words behind hybrid must be of zero, fsdp, hsdp, gathered, got 'data=2'$"):
        make_plan(model.graph, model.cluster, strategy="hybrid,data=2")
    with pytest.raises(ConfigError, match=r"refine must be >= 0, .* got 5 for data$"):
        make_plan(model.graph, model.cluster, strategy="data", refine=5)
    with pytest.raises(InfeasiblePlanError, match=r"none of \d+ hybrids fits in memory$"):
        search_hybrids(CostModel(load_model("cosmoflow:size=512", batch=64), cluster_of("titanx-4", 2)))
