"""Tables and figures of the paper on layer-wise parallelism (OptCNN).

Assumptions.  Gradients of a layer go to the server of that layer and back (Sec. 5.1); the paper does not say
where it is, here it is the layer's first replica, for all strategies.  There are 32 samples a GPU and strong links
inside the nodes, with overlap and contention.

Source: Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import mul
from time import perf_counter

from groundwork.progress import Progress
from planner.cost.cost_model import CostModel
from planner.elimination.depth_first_search import depth_first
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.search_problem import SearchProblem
from planner.layouts.configurations import Configuration
from planner.lowering.lower_strategy import lower
from planner.search.layerwise import search_layerwise
from planner.search.search_tables import search_problem
from planner.simulation.additive_cost import additive_s
from planner.strategies.named_strategies import spaces_of
from studies.reproduce.priced_cases import PricedCase, PricedCases, PricedOutcome
from studies.reproduce.rows import ClaimResult, PaperRow, claim_row, claims_of, range_text

_MODELS = ("alexnet", "vgg16", "inception-v3")
OTHERS = ("data", "model", "owt")
_SAMPLES = 32
"""Samples a GPU in all experiments (Sec. 6)."""


def layerwise_rows(progress: Progress | None = None) -> Iterator[PaperRow]:
    """Yield every row, in the paper's order."""
    results = PricedCases()
    for claim in claims_of("layerwise", progress):
        yield claim_row("Layer-wise", claim, LAYERWISE_CLAIMS, results)


def _one_node(model: str) -> PricedCase:
    return PricedCase(model, 4 * _SAMPLES, "p100", "ps")


def _all_nodes(model: str) -> PricedCase:
    return PricedCase(model, 16 * _SAMPLES, "p100-4", "ps")


def _layers(results: PricedCases, model: str) -> ClaimResult:
    layers = results.model(_one_node(model)).graph.layers
    note = "softmax and loss are one layer here"
    if model == "inception-v3":
        note += "; every pooling layer and concatenation is a layer too: DeePa counts 120 nodes"
    return float(len(layers)), note


def _problem(results: PricedCases, model: str) -> SearchProblem:
    """Return the search for the optimum of Eq. 1 on one node."""
    priced = results.model(_one_node(model))
    return search_problem(priced, priced.all_configurations(), priced.transfer_times.table)


def _partial_strategies(problem: SearchProblem) -> float:
    """Return the partial strategies that a depth-first search visits: every choice for the first k layers, each k."""
    return float(sum(accumulate(map(float, problem.counts), mul)))


def _depth_first(results: PricedCases, model: str) -> ClaimResult:
    """Return the time of a depth-first search: run for LeNet-5, estimated from its rate for larger networks."""
    small, problem = _problem(results, "lenet5"), _problem(results, model)
    began = perf_counter()
    depth_first(small)
    rate = _partial_strategies(small) / (perf_counter() - began)
    if model == "lenet5":
        return _partial_strategies(small) / rate, f"compiled, {rate:.2g} partial strategies a second"
    size = _partial_strategies(problem)
    note = f"estimated: {size:.1e} partial strategies at LeNet-5's {rate:.2g} a second"
    if model == "alexnet":
        same = math.isclose(depth_first(problem, prune=True).cost_s, eliminate(problem).cost_s, rel_tol=1e-12)
        note += f"; with pruning it ends, and its optimum {'is' if same else 'is not'} elimination's"
    return size / rate, note


def _elimination(results: PricedCases, model: str) -> ClaimResult:
    known = results.model(_one_node(model))
    began = perf_counter()
    search_layerwise(CostModel(known.graph, known.cluster, known.gradient_sync))
    return perf_counter() - began, "cost tables included, on this machine"


def _optimum(results: PricedCases, *layers: str) -> ClaimResult:
    """Return the configuration that most of the layers have in the optimum of Eq. 1 in the paper's form."""
    bus = PricedCase("vgg16", 4 * _SAMPLES, "bus p100", "ps")
    forms, others = (
        Counter(results.strategy(case, "layerwise")[name].describe() for name in layers)
        for case in (bus, _one_node("vgg16"))
    )
    note = f"{_listed(forms)} with total bytes over one NVLink's 18 GB/s; priced on routes {_listed(others)}"
    if "conv5_1" in layers:
        note += f"; {_spatial_gain(results, bus)}"
    return forms.most_common(1)[0][0], note


def _listed(forms: Counter[str]) -> str:
    return ", ".join(f"{count} x {form}" for form, count in forms.most_common())


def _spatial_gain(results: PricedCases, case: PricedCase) -> str:
    """Return a note on the printed choice for block 5: its gain in computation and its loss in transfers."""
    model, optimum = results.model(case), results.strategy(case, "layerwise")
    halves = Configuration({"sample": 1, "channel": 1, "height": 2, "width": 2}, (0, 1, 2, 3))
    printed = {**optimum, **dict.fromkeys(("conv5_1", "conv5_2", "conv5_3"), halves)}
    computed = [
        sum(model.node_costs(i, space).compute_s[0] for i, space in enumerate(spaces_of(model.graph, strategy, 4)))
        for strategy in (optimum, printed)
    ]
    total = additive_s(model, printed) - additive_s(model, optimum)
    return (
        f"h=2 w=2 in its convolutions computes {1e3 * (computed[0] - computed[1]):.1f} ms faster but costs "
        f"{1e3 * total:.1f} ms more with its transfers; the 7 x 7 outputs of the pooling have no equal halves"
    )


def _best_other(results: PricedCases, model: str) -> tuple[str, PricedOutcome]:
    """Return the fastest strategy but the layer-wise one on all nodes, and its outcome."""
    case = _all_nodes(model)
    outcomes = {name: results.outcome(case, name) for name in OTHERS}
    best = min(outcomes, key=lambda name: outcomes[name].simulated_s)
    return best, outcomes[best]


def _speedup(results: PricedCases, model: str) -> ClaimResult:
    name, other = _best_other(results, model)
    ours = results.fastest(_all_nodes(model)).simulated_s
    spread_servers = PricedCase(model, 16 * _SAMPLES, "p100-4", "ps-spread")
    others = min(results.outcome(spread_servers, strategy).simulated_s for strategy in ("data", "owt"))
    best = results.fastest(spread_servers).simulated_s
    note = (
        f"the best other strategy is {name}; by the additive cost of Eq. 1, which Table 4 finds within 10 % of their "
        f"iterations, {_by_eq_1(results, model):.2f}; with servers spread over the replicas {others / best:.2f}"
    )
    return other.simulated_s / ours, note


def _by_eq_1(results: PricedCases, model: str) -> float:
    """Return the speedup of the layer-wise optimum by Eq. 1, over the best of the other strategies."""
    case = _all_nodes(model)
    others = [results.outcome(case, name).additive_s for name in OTHERS]
    return min(others) / results.outcome(case, "layerwise").additive_s


def _scaling(results: PricedCases, model: str, which: str) -> ClaimResult:
    alone = results.outcome(PricedCase(model, _SAMPLES, "one p100", "ps"), "data").simulated_s
    name, other = _best_other(results, model)
    together = results.fastest(_all_nodes(model)) if which == "layerwise" else other
    eq_1 = results.outcome(_all_nodes(model), "layerwise" if which == "layerwise" else name).additive_s
    note = f"by the additive cost of Eq. 1, in which nothing overlaps, {16 * alone / eq_1:.1f}"
    return (
        16 * alone / together.simulated_s,
        note if which == "layerwise" else f"the best other strategy is {name}; {note}",
    )


def _owt_transfers(results: PricedCases) -> ClaimResult:
    ratios = {
        name: [
            results.outcome(_all_nodes(model), name).moved_bytes / results.outcome(_all_nodes(model), "owt").moved_bytes
            for model in _MODELS
        ]
        for name in ("data", "model")
    }
    each = "; ".join(
        f"against {name} AlexNet {a:.2f}, VGG-16 {v:.2f}, Inception-v3 {i:.2f}" for name, (a, v, i) in ratios.items()
    )
    return range_text([*ratios["data"], *ratios["model"]]), (
        f"16 GPUs; {each}; model parallelism splits all layers by channels here and gathers every activation on every "
        "device; the paper does not say which bytes its own model parallelism moves"
    )


def _layerwise_transfers(results: PricedCases) -> ClaimResult:
    """Return the bytes that OWT moves over those of the layer-wise optimum.

    The paper does not say by which prices it found the strategies whose transfers it counts; two are compared.
    """

    def ratios(bus: str) -> list[float]:
        cases = [(_all_nodes(model), PricedCase(model, 16 * _SAMPLES, f"{bus} p100-4", "ps")) for model in _MODELS]
        return [
            results.outcome(case, "owt").moved_bytes / results.outcome(case, "layerwise", priced).moved_bytes
            for case, priced in cases
        ]

    nvlink, edr = ratios("bus"), ratios("edr-bus")
    each = "AlexNet {:.2f}, VGG-16 {:.2f}, Inception-v3 {:.2f}".format(*nvlink)
    note = f"{each}; optimum of Eq. 1 in the paper's form, total bytes over one NVLink's 18 GB/s"
    note += f"; over an EDR card's 12.1 GB/s {range_text(edr)}; {_flat_optimum(results)}"
    return range_text(nvlink), note


def _flat_optimum(results: PricedCases) -> str:
    """Return a note on AlexNet's first two dense layers, whose degree decides its factor by a small margin."""
    case, bus = _all_nodes("alexnet"), PricedCase("alexnet", 16 * _SAMPLES, "bus p100-4", "ps")
    optimum = results.strategy(bus, "layerwise")
    quarters = Configuration({"sample": 1, "channel": 4}, (0, 1, 2, 3))
    other = {**optimum, "fc1": quarters, "fc2": quarters}
    slower = additive_s(results.model(bus), other) / additive_s(results.model(bus), optimum) - 1
    moved = lower(results.model(case), spaces_of(results.model(case).graph, other, 16)).moved_bytes
    return (
        f"AlexNet's optimum is flat: fc1 and fc2 over four devices instead of {optimum['fc1'].parts} cost "
        f"{100 * slower:.1f} % more, less than dense products are known to, and give "
        f"{results.outcome(case, 'owt').moved_bytes / moved:.2f}"
    )


LAYERWISE_CLAIMS: dict[str, Callable[..., ClaimResult]] = {
    "layers": _layers,
    "depth_first": _depth_first,
    "elimination": _elimination,
    "optimum": _optimum,
    "best_other": _speedup,
    "scaling": _scaling,
    "owt_transfers": _owt_transfers,
    "layerwise_transfers": _layerwise_transfers,
}
"""Function that recomputes a claim, by the first word of its key."""
