"""The layer-wise search finds what elimination of complete cost tables finds."""

import itertools
from dataclasses import replace
from functools import cache

import pytest
from plans import residual_block

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.cost_model import CostModel
from planner.cost.transfer_time import TransferTimes
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.search_problem import strategy_cost
from planner.models.registry import load_model
from planner.search import layerwise, priced_problem
from planner.search.layerwise import search_layerwise
from planner.search.search_tables import search_problem
from planner.strategies.named_rules import NAMED
from planner.strategies.named_strategies import named_strategy, spaces_of

CASES = [
    ("lenet5", "p100-4x4:nodes=1", 128),
    ("alexnet", "p100-4x4", 512),
    ("alexnet", "fdr-32x3:nodes=4", 60),
    ("alexnet", "k80-16", 512),
    ("block", "p100-4x4", 512),
    ("block", "dgx1-p100", 256),
    ("googlenet", "titanx-4", 64),
]


def model_of(case):
    """A cost model that has no tables yet."""
    name, cluster, batch = case
    graph = residual_block(batch) if name == "block" else load_model(name, batch=batch)
    return CostModel(graph, load_cluster(cluster))


@cache
def known_answer(case):
    """Another cost model, so that no search finds its tables, and Eq. 1 of the best strategy from complete tables."""
    model = model_of(case)
    problem = search_problem(model, model.all_configurations(), model.transfer_times.table)
    return model, eliminate(problem).cost_s


def price_s(model, strategy):
    spaces = spaces_of(model.graph, strategy, len(model.cluster.devices))
    return strategy_cost(search_problem(model, spaces, model.transfer_times.table), [0] * len(spaces))


def weaken_bounds(monkeypatch, quality):
    """Bounds that are worse than they are, on small problems too."""
    bounds = TransferTimes.bounds

    def worse(self, *arguments):
        return bounds(self, *arguments) * quality

    monkeypatch.setattr(TransferTimes, "bounds", worse)
    for module in (layerwise, priced_problem):
        monkeypatch.setattr(module, "DIRECT_VISITS", 0)
    monkeypatch.setattr(priced_problem, "_FEW_DEVICES", 0)
    monkeypatch.setattr(layerwise, "_PRICED_PARTS", 0)


@pytest.mark.parametrize(
    ("case", "quality"),
    [*((case, 1.0) for case in CASES), *((case, 0.7) for case in (CASES[0], CASES[2]))],
    ids=lambda each: f"{each[0]} on {each[1]}" if isinstance(each, tuple) else str(each),
)
def test_search_on_bounds_equals_elimination_of_complete_tables(case, quality, monkeypatch):
    """Also where the bounds prove nothing and a second round has to price what they leave."""
    other, least_s = known_answer(case)
    weaken_bounds(monkeypatch, quality)
    found = search_layerwise(model_of(case))
    assert found.cost_s == pytest.approx(least_s, rel=1e-12)
    assert price_s(other, found.strategy) == pytest.approx(found.cost_s, rel=1e-12)


@pytest.mark.parametrize(("case", "quality"), [(CASES[0], 1.0), (CASES[1], 0.0), (CASES[4], 0.7)])
def test_no_named_strategy_is_better(case, quality, monkeypatch):
    """Known strategies are upper bounds, whether they help or not: what they rule out is in no better one."""
    other, least_s = known_answer(case)
    weaken_bounds(monkeypatch, quality)
    model = model_of(case)
    known = [named_strategy(name, model.graph, len(model.cluster.devices)) for name in NAMED]
    found = search_layerwise(model, known=known)
    assert found.cost_s == pytest.approx(least_s, rel=1e-12)
    assert all(found.cost_s <= price_s(other, strategy) * (1 + 1e-12) for strategy in known)


@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[5]], ids=lambda case: f"{case[0]} on {case[1]}")
def test_cheap_bounds_of_transfers_are_below_their_times(case):
    """Against complete tables; of data parallelism they are none, as nothing travels."""
    model, found = model_of(case), 0.0
    spaces, times = model.all_configurations(), model.transfer_times
    for edge in model.graph.edges:
        ends = spaces[edge.producer], spaces[edge.consumer]
        least_s, exact_s = times.least_s(edge, *ends), times.table(edge, *ends)
        assert (least_s <= exact_s * (1 + 1e-12)).all()
        found = max(found, float((least_s[exact_s > 0] / exact_s[exact_s > 0]).max()))
    assert found > 0.3


def first_devices(cluster, count):
    """The same cluster without its last devices; switches stay."""
    more = len(cluster.devices) - count
    place = {v: v - more * (v >= count) for v in range(len(cluster.vertices)) if not count <= v < count + more}
    links = [
        replace(link, source=place[link.source], target=place[link.target])
        for link in cluster.links
        if link.source in place and link.target in place
    ]
    switches = cluster.vertices[len(cluster.devices) :]
    return DeviceGraph("first", cluster.devices[:count], switches, links, hosts=cluster.hosts, library=cluster.library)


@pytest.mark.parametrize(
    "clusters",
    [
        [load_cluster(f"fdr-32x3:nodes={nodes}") for nodes in (3, 4)],
        [first_devices(load_cluster("titanx-4:nodes=3"), count) for count in (7, 8, 11)],
    ],
    ids=["a machine more", "a device more"],
)
@pytest.mark.parametrize("direct", [True, False])
def test_more_devices_never_make_the_optimum_worse(clusters, direct, monkeypatch):
    """The optimum is that of complete tables."""
    if not direct:
        weaken_bounds(monkeypatch, 0.7)
    graph, costs = load_model("alexnet", batch=64), []
    for cluster in clusters:
        model = CostModel(graph, cluster)
        found = search_layerwise(model)
        assert price_s(model, found.strategy) == pytest.approx(found.cost_s, rel=1e-12)
        costs.append(found.cost_s)

    assert all(more <= fewer * (1 + 1e-12) for fewer, more in itertools.pairwise(costs))
    table = search_problem(model, model.all_configurations(), model.transfer_times.table)
    assert costs[-1] == pytest.approx(eliminate(table).cost_s, rel=1e-12)


def test_a_machine_more_never_makes_the_optimum_of_many_devices_worse():
    """What lies well when it is spread over 36 devices lies askew over 39."""
    graph = load_model("alexnet", batch=64)
    fewer, more = (search_layerwise(CostModel(graph, load_cluster(f"fdr-32x3:nodes={each}"))) for each in (12, 13))
    assert more.cost_s <= fewer.cost_s * (1 + 1e-12)


def test_small_problems_are_priced_whole():
    """The counts that are reported say what was done."""
    model = model_of(CASES[0])
    found = search_layerwise(model)
    spaces = model.all_configurations()
    assert found.configurations == sum(space.size for space in spaces)
    assert found.pairs_priced >= sum(
        len(set(model.transfer_times.layouts(edge, spaces[edge.consumer]).tolist())) for edge in model.graph.edges
    )
    assert set(found.strategy) == {layer.name for layer in model.graph.layers}


def test_a_known_strategy_that_is_not_offered_is_ignored(monkeypatch):
    """Its price may be below that of all offered ones: as an upper bound it would leave none."""
    model, other = (model_of(("alexnet", "p100-4x4:nodes=1", 128)) for _ in range(2))
    strategy = search_layerwise(model).strategy
    shuffled = {
        name: type(c)(c.degrees, tuple(reversed(c.devices)) if c.parts > 1 else c.devices)
        for name, c in strategy.items()
    }
    assert layerwise._choices(model.all_configurations(), model, [strategy, shuffled]) != []
    assert len(layerwise._choices(model.all_configurations(), model, [shuffled])) == 0
    weaken_bounds(monkeypatch, 0.7)
    assert search_layerwise(other, known=[shuffled, strategy]).cost_s == pytest.approx(
        price_s(model, strategy), rel=1e-12
    )
