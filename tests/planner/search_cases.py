"""Random search problems and the oracle that tries every strategy."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from planner.elimination.search_problem import SearchProblem, TensorCost, strategy_cost


def make_tensor(rng, producer, consumers, counts, *, layouts, infinite=0.0):
    """One price per (producer configuration, layout); consumers ask for random layouts; some pairs forbidden."""
    price = rng.integers(0, 20, (counts[producer], layouts)).astype(float) * rng.choice([0.25, 1.0])
    asked = tuple(rng.integers(0, layouts, counts[c]) for c in consumers)
    costs = tuple(np.where(rng.random((counts[producer], len(a))) < infinite, np.inf, price[:, a]) for a in asked)
    return TensorCost(producer=producer, consumers=tuple(consumers), cost_s=costs, layout=asked)


def make_problem(
    edges: Iterable[tuple[int, Sequence[int]]], counts: Sequence[int], *, seed=0, layouts=3, infinite=0.0
) -> SearchProblem:
    """Random tables on a given graph: ``edges`` lists producers and their consumers."""
    rng = np.random.default_rng(seed)
    return SearchProblem(
        node_cost_s=tuple(rng.integers(0, 20, count).astype(float) for count in counts),
        tensors=tuple(
            make_tensor(rng, producer, consumers, counts, layouts=layouts, infinite=infinite)
            for producer, consumers in edges
        ),
    )


def random_problem(seed: int) -> SearchProblem:
    """A random acyclic graph of up to 7 nodes: several sources and sinks, parallel edges, shared layouts."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, 8))
    counts = [int(c) for c in rng.integers(1, 5, nodes)]
    edges = []
    for producer in range(nodes - 1):
        readers = rng.integers(producer + 1, nodes, int(rng.integers(0, 4)))
        if len(readers):
            edges.append((producer, [int(c) for c in readers]))
    infinite = float(rng.choice([0.0, 0.0, 0.15]))
    return make_problem(edges, counts, seed=seed, layouts=int(rng.integers(1, 7)), infinite=infinite)


def all_costs(problem: SearchProblem) -> dict[tuple[int, ...], float]:
    """Price of every strategy."""
    return {choice: strategy_cost(problem, choice) for choice in itertools.product(*map(range, problem.counts))}


def chain_edges(nodes: int) -> list[tuple[int, list[int]]]:
    """0 -> 1 -> ... ."""
    return [(node, [node + 1]) for node in range(nodes - 1)]


def residual_edges(blocks: int) -> list[tuple[int, list[int]]]:
    """Blocks of two convolutions and a skip: ResNet's shape, 3 nodes a block."""
    edges = []
    for start in range(0, 3 * blocks, 3):
        edges += [(start, [start + 1, start + 3]), (start + 1, [start + 2]), (start + 2, [start + 3])]
    return edges


def inception_edges(modules: int) -> list[tuple[int, list[int]]]:
    """Modules of four branches, one of them forked again: Inception-v3's last modules, 9 nodes a module."""
    edges = []
    for u in range(0, 9 * modules, 9):
        end = u + 9
        edges += [(u, [u + 1, u + 2, u + 4, u + 7]), (u + 1, [end]), (u + 2, [u + 3]), (u + 3, [end])]
        edges += [(u + 4, [u + 5, u + 6]), (u + 5, [end]), (u + 6, [end]), (u + 7, [u + 8]), (u + 8, [end])]
    return edges


def equal_residual_blocks(blocks: int, *, configurations: int = 6, copy: bool = False) -> SearchProblem:
    """Residual blocks with the same tables: the same objects, or copies."""
    rng = np.random.default_rng(3)
    node = [rng.random(configurations) for _ in range(3)]
    skip, inner, last = (rng.random((configurations, configurations)) for _ in range(3))
    layout = np.arange(configurations)
    tensors = []
    for producer, consumers in residual_edges(blocks):
        tables = ((skip, skip), (inner,), (last,))[producer % 3]
        if copy:
            tables = tuple(map(np.copy, tables))
        layouts = (layout,) * len(tables)
        tensors.append(TensorCost(producer=producer, consumers=tuple(consumers), cost_s=tables, layout=layouts))
    return SearchProblem(node_cost_s=tuple(node[i % 3] for i in range(3 * blocks + 1)), tensors=tuple(tensors))
