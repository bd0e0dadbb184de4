"""The layer-wise paper's tables and figures.

How they are read.  Gradients of a layer go to the server of that layer and back (Sec. 5.1); the paper does not say
where it is, here it is the layer's first replica, for all strategies.  32 samples a GPU, strong links inside the
nodes, overlap and contention on.

Source: Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import mul
from time import perf_counter

from hwprofiles import Progress
from planner.cost import CostModel
from planner.elimination import SearchProblem, depth_first, eliminate
from planner.parallel import Configuration, spaces_of
from planner.search import search_layerwise, search_problem
from planner.simulation import additive_s
from studies.reproduce.priced_cases import PricedCase, PricedCases, PricedOutcome
from studies.reproduce.rows import PaperRow, Value, range_text, row, stored

__all__ = ["layerwise_rows"]

_MODELS = ("alexnet", "vgg16", "inception-v3")
OTHERS = ("data", "model", "owt")
_SAMPLES = 32
"""Samples a GPU in all experiments (Sec. 6)."""
_Answer = tuple[Value, str]


def layerwise_rows(progress: Progress | None = None) -> Iterator[PaperRow]:
    """Every row, in the paper's order."""
    claims, bench = stored("layerwise_claims"), PricedCases()
    for done, claim in enumerate(claims):
        if progress:
            progress(claim["claim"], done, len(claims))
        yield _claim_row(claim, bench)


def _claim_row(claim: dict[str, str], bench: PricedCases) -> PaperRow:
    """Recompute one claim of ``layerwise_claims``."""
    name, *words = claim["key"].split()
    ours, why = _CLAIMS[name](bench, *words)
    return row(f"Layer-wise, {claim['source']}: {claim['claim']}", claim["value"], ours, claim["unit"], why)


def _one_node(model: str) -> PricedCase:
    return PricedCase(model, 4 * _SAMPLES, "p100", "ps")


def _all_nodes(model: str) -> PricedCase:
    return PricedCase(model, 16 * _SAMPLES, "p100-4", "ps")


def _layers(bench: PricedCases, model: str) -> _Answer:
    layers = bench.model(_one_node(model)).graph.layers
    why = "softmax and loss are a layer here"
    if model == "inception-v3":
        why += "; so is every pooling layer and concatenation: DeePa counts 120 nodes"
    return float(len(layers)), why


def _problem(bench: PricedCases, model: str) -> SearchProblem:
    priced = bench.model(_one_node(model))
    return search_problem(priced, priced.all_configurations(), priced.transfer_times.table)


def _timed(search: Callable[[SearchProblem], object], problem: SearchProblem) -> float:
    began = perf_counter()
    search(problem)
    return perf_counter() - began


def _partial_strategies(problem: SearchProblem) -> float:
    """What the depth-first search visits: every choice for the first layers, after each layer."""
    return float(sum(accumulate(map(float, problem.counts), mul)))


def _depth_first(bench: PricedCases, model: str) -> _Answer:
    """LeNet-5 is run; the others would take too long, and are estimated from its rate."""
    small, problem = _problem(bench, "lenet5"), _problem(bench, model)
    rate = _partial_strategies(small) / _timed(depth_first, small)
    if model == "lenet5":
        return _partial_strategies(small) / rate, f"compiled, {rate:.2g} partial strategies a second"
    size = _partial_strategies(problem)
    why = f"estimated: {size:.1e} partial strategies at LeNet-5's {rate:.2g} a second"
    if model == "alexnet":
        same = math.isclose(depth_first(problem, prune=True).cost_s, eliminate(problem).cost_s, rel_tol=1e-12)
        why += f"; with pruning it ends, and its optimum {'is' if same else 'is not'} elimination's"
    return size / rate, why


def _elimination(bench: PricedCases, model: str) -> _Answer:
    known = bench.model(_one_node(model))
    began = perf_counter()
    search_layerwise(CostModel(known.graph, known.cluster, known.gradient_sync))
    return perf_counter() - began, "cost tables included, on this machine"


def _optimum(bench: PricedCases, *layers: str) -> _Answer:
    """The configuration that most of the layers have in the optimum of Eq. 1 in the paper's form."""
    bus = PricedCase("vgg16", 4 * _SAMPLES, "bus p100", "ps")
    forms, others = (
        Counter(bench.strategy(case, "layerwise")[name].describe() for name in layers)
        for case in (bus, _one_node("vgg16"))
    )
    why = f"{_listed(forms)} with total bytes over one NVLink's 18 GB/s; priced on routes {_listed(others)}"
    if "conv5_1" in layers:
        why += f"; {_spatial_gain(bench, bus)}"
    return forms.most_common(1)[0][0], why


def _listed(forms: Counter[str]) -> str:
    return ", ".join(f"{count} x {form}" for form, count in forms.most_common())


def _spatial_gain(bench: PricedCases, case: PricedCase) -> str:
    """What the printed choice for block 5 gains in arithmetic and loses in transfers, against ours."""
    model, found = bench.model(case), bench.strategy(case, "layerwise")
    halves = Configuration({"sample": 1, "channel": 1, "height": 2, "width": 2}, (0, 1, 2, 3))
    printed = {**found, **dict.fromkeys(("conv5_1", "conv5_2", "conv5_3"), halves)}
    computed = [
        sum(model.node_costs(i, space).compute_s[0] for i, space in enumerate(spaces_of(model.graph, strategy, 4)))
        for strategy in (found, printed)
    ]
    total = additive_s(model, printed) - additive_s(model, found)
    return (
        f"h=2 w=2 in its convolutions computes {1e3 * (computed[0] - computed[1]):.1f} ms faster but costs "
        f"{1e3 * total:.1f} ms more with its transfers; the 7 x 7 outputs of the pooling have no equal halves"
    )


def _best_other(bench: PricedCases, model: str) -> tuple[str, PricedOutcome]:
    case = _all_nodes(model)
    outcomes = {name: bench.outcome(case, name) for name in OTHERS}
    best = min(outcomes, key=lambda name: outcomes[name].simulated_s)
    return best, outcomes[best]


def _speedup(bench: PricedCases, model: str) -> _Answer:
    name, other = _best_other(bench, model)
    ours = bench.fastest(_all_nodes(model)).simulated_s
    spread_servers = PricedCase(model, 16 * _SAMPLES, "p100-4", "ps-spread")
    others = min(bench.outcome(spread_servers, strategy).simulated_s for strategy in ("data", "owt"))
    best = bench.fastest(spread_servers).simulated_s
    why = (
        f"best other is {name}; by Eq. 1, which Table 4 finds within 10 % of their iterations, "
        f"{_by_eq_1(bench, model):.2f}; with servers spread over the replicas {others / best:.2f}"
    )
    return other.simulated_s / ours, why


def _by_eq_1(bench: PricedCases, model: str) -> float:
    case = _all_nodes(model)
    others = [bench.outcome(case, name).additive_s for name in OTHERS]
    return min(others) / bench.outcome(case, "layerwise").additive_s


def _scaling(bench: PricedCases, model: str, which: str) -> _Answer:
    alone = bench.outcome(PricedCase(model, _SAMPLES, "one p100", "ps"), "data").simulated_s
    name, other = _best_other(bench, model)
    together = bench.fastest(_all_nodes(model)) if which == "layerwise" else other
    eq_1 = bench.outcome(_all_nodes(model), "layerwise" if which == "layerwise" else name).additive_s
    why = f"by Eq. 1, which hides nothing behind arithmetic, {16 * alone / eq_1:.1f}"
    return 16 * alone / together.simulated_s, why if which == "layerwise" else f"best other is {name}; {why}"


def _owt_transfers(bench: PricedCases) -> _Answer:
    ratios = {
        name: [
            bench.outcome(_all_nodes(model), name).moved_bytes / bench.outcome(_all_nodes(model), "owt").moved_bytes
            for model in _MODELS
        ]
        for name in ("data", "model")
    }
    each = "; ".join(
        f"against {name} AlexNet {a:.2f}, VGG-16 {v:.2f}, Inception-v3 {i:.2f}" for name, (a, v, i) in ratios.items()
    )
    return range_text([*ratios["data"], *ratios["model"]]), (
        f"16 GPUs; {each}; model parallelism splits all layers by channels here and gathers every activation on every "
        "device, the paper leaves open what its own moves"
    )


def _layerwise_transfers(bench: PricedCases) -> _Answer:
    """The paper does not say with which prices the strategies were found whose transfers it counts."""

    def ratios(bus: str) -> list[float]:
        cases = [(_all_nodes(model), PricedCase(model, 16 * _SAMPLES, f"{bus} p100-4", "ps")) for model in _MODELS]
        return [
            bench.outcome(case, "owt").moved_bytes / bench.outcome(case, "layerwise", priced).moved_bytes
            for case, priced in cases
        ]

    nvlink, edr = ratios("bus"), ratios("edr-bus")
    each = "AlexNet {:.2f}, VGG-16 {:.2f}, Inception-v3 {:.2f}".format(*nvlink)
    why = f"{each}; optimum of Eq. 1 in the paper's form, total bytes over one NVLink's 18 GB/s"
    return range_text(nvlink), f"{why}; over an EDR card's 12.1 GB/s {range_text(edr)}"


_CLAIMS: dict[str, Callable[..., _Answer]] = {
    "layers": _layers,
    "depth_first": _depth_first,
    "elimination": _elimination,
    "optimum": _optimum,
    "best_other": _speedup,
    "scaling": _scaling,
    "owt_transfers": _owt_transfers,
    "layerwise_transfers": _layerwise_transfers,
}
"""How a claim is recomputed, by the first word of its key."""
