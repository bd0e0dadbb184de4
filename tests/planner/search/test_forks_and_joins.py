"""The layer-wise search of random networks of forks and joins finds what elimination of complete cost tables finds."""

import numpy as np
import pytest

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.elimination.bounds import relax
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.search_problem import strategy_cost
from planner.models.builder import ModelBuilder
from planner.search import layerwise, priced_problem
from planner.search.layerwise import search_layerwise
from planner.search.priced_problem import PairBounds
from planner.search.search_tables import search_problem
from planner.strategies.named_strategies import spaces_of

CLUSTERS = ("titanx-4:nodes=2", "p100-4x4:nodes=2", "fdr-32x3:nodes=2", "dgx1-p100")


def random_network(seed):
    """Branches of one to three layers that read one tensor, of which some read others, too; joined, two times over."""
    rng = np.random.default_rng(seed)
    net = ModelBuilder("random", batch=int(rng.choice([8, 12])), image=(4, 8, 8))
    net.conv(8, 3, pad=1)
    for _ in range(2):
        made = [net.last]
        ends = []
        for _ in range(int(rng.integers(2, 5))):
            source = made[int(rng.integers(len(made))) if rng.random() < 0.3 else 0]
            for _ in range(int(rng.integers(1, 4))):
                kernel = int(rng.choice([1, 3]))
                source = net.conv(int(rng.choice([4, 8, 64])), kernel, source, pad=kernel // 2)
                made.append(source)
            ends.append(source)
        net.concat(ends)
    net.linear(int(rng.choice([10, 512])))
    net.loss()
    return net.build()


def model_of(seed, cluster):
    return CostModel(random_network(seed), load_cluster(cluster))


@pytest.fixture
def bounded(monkeypatch):
    """Pairs of configurations are bounded, though there are few of them."""
    for module in (layerwise, priced_problem):
        monkeypatch.setattr(module, "DIRECT_VISITS", 0)
    monkeypatch.setattr(priced_problem, "_FEW_DEVICES", 0)


@pytest.mark.parametrize(("seed", "cluster"), list(enumerate(CLUSTERS)))
@pytest.mark.usefixtures("bounded")
def test_search_of_forks_and_joins_is_exact(seed, cluster):
    model, other = (model_of(seed, cluster) for _ in range(2))
    problem = search_problem(other, other.all_configurations(), other.transfer_times.table)
    least_s = eliminate(problem).cost_s
    found = search_layerwise(model)
    assert found.cost_s == pytest.approx(least_s, rel=1e-12)
    spaces = spaces_of(other.graph, found.strategy, len(other.cluster.devices))
    priced = search_problem(other, spaces, other.transfer_times.table)
    assert strategy_cost(priced, [0] * len(spaces)) == pytest.approx(least_s, rel=1e-12)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.usefixtures("bounded")
def test_rounds_of_bounds_stay_below_the_times_and_keep_the_optimum(cluster):
    """Whether pairs were bounded already or not, and of the configurations that are left."""
    model, other = (model_of(7, cluster) for _ in range(2))
    least_s = eliminate(search_problem(other, other.all_configurations(), other.transfer_times.table)).cost_s
    bounds = PairBounds(model, model.all_configurations())
    for share, forks in ((0.1, False), (1.0, False), (1.0, True)):
        bounds.tighten(least_s, share, forks=forks)
        for edge in model.graph.edges:
            exact_s = model.transfer_times.table(edge, bounds.spaces[edge.producer], bounds.spaces[edge.consumer])
            cost_s = bounds.pairs(edge).cost_s
            assert (cost_s[cost_s < np.inf] <= exact_s[cost_s < np.inf] * (1 + 1e-12)).all()
        bounds = bounds.within(least_s)
        bound_s = max(float(bound.min()) for bound in relax(bounds.problem).node_s)
        assert bound_s <= least_s * (1 + 1e-9)
    assert bound_s > 0.5 * least_s
