"""Times of the exact searches on tables of the size of real networks: ``python tests/benchmarks/search.py``.

Tables are random, layers of one stage share their table objects, and nearly every configuration asks for a layout of
its own, which is the hard case.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "planner"))

from pruned_elimination import eliminate_pruned, tree_bounds

from planner.elimination.depth_first_search import depth_first
from planner.elimination.eliminate_nodes import eliminate
from planner.elimination.search_problem import SearchProblem, TensorCost

RESNET_152 = (3, 8, 36, 3)
"""Residual blocks per stage."""


class Builder:
    """Adds layers and tensors; equal (stage, role) names give equal objects."""

    def __init__(self, configurations: int) -> None:
        self.count = configurations
        self.rng = np.random.default_rng(0)
        self.made: dict[tuple[object, ...], np.ndarray] = {}
        self.nodes: list[np.ndarray] = []
        self.reads: list[tuple[int, list[int], list[tuple[object, ...]]]] = []

    def _once(self, key: tuple[object, ...], make: Callable[[], np.ndarray]) -> np.ndarray:
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def layer(self, *key: object) -> int:
        """Add a node."""
        self.nodes.append(self._once(("node", *key), lambda: self.rng.random(self.count)))
        return len(self.nodes) - 1

    def tensor(self, producer: int, readers: Iterable[tuple[int, str]], *key: object) -> None:
        """Add a tensor; readers of one kind (``conv``, ``pool``, ...) ask for layouts in the same way."""
        self.reads.append((producer, *map(list, zip(*((node, (*key, kind)) for node, kind in readers), strict=True))))

    def problem(self) -> SearchProblem:
        """Draw the tables."""
        tensors = []
        for producer, consumers, keys in self.reads:
            price = self._once(("price", keys[0][:-1]), lambda: self.rng.random((self.count, 3 * self.count)))
            layouts = [self._once(("layout", key[-1]), self._layout) for key in keys]
            costs = [
                self._once(("cost", key), lambda price=price, asked=asked: np.take(price, asked, axis=1))
                for key, asked in zip(keys, layouts, strict=True)
            ]
            tensors.append(
                TensorCost(producer=producer, consumers=tuple(consumers), cost_s=tuple(costs), layout=tuple(layouts))
            )
        return SearchProblem(node_cost_s=tuple(self.nodes), tensors=tuple(tensors))

    def _layout(self) -> np.ndarray:
        """Nine in ten layouts of their own, a part of them common with other kinds."""
        return self.rng.permutation(int(1.5 * self.count))[: self.count]


def chain(configurations: int, layers: int) -> SearchProblem:
    """LeNet, AlexNet and VGG have this shape."""
    build = Builder(configurations)
    nodes = [build.layer(i) for i in range(layers)]
    for first, second in itertools.pairwise(nodes):
        build.tensor(first, [(second, "conv")], first)
    return build.problem()


def resnet(configurations: int, stages: tuple[int, ...] = RESNET_152) -> SearchProblem:
    """Bottleneck blocks: three convolutions and an addition, the first of a stage with a fourth on the skip."""
    build = Builder(configurations)
    last = build.layer("stem")
    for stage, blocks in enumerate(stages):
        for block in range(blocks):
            kind = (stage, "first" if block == 0 else "next")
            layers = [build.layer(*kind, i) for i in range(3)]
            skip = build.layer(*kind, "skip") if block == 0 else None
            end = build.layer(stage, "add")
            source = (*kind, "second" if block == 1 else "")
            build.tensor(last, [(layers[0], "conv"), (end, "add") if skip is None else (skip, "conv")], *source)
            build.tensor(layers[0], [(layers[1], "conv")], *kind, 0)
            build.tensor(layers[1], [(layers[2], "conv")], *kind, 1)
            build.tensor(layers[2], [(end, "add")], *kind, 2)
            if skip is not None:
                build.tensor(skip, [(end, "add")], *kind, 3)
            last = end
    return build.problem()


def inception(configurations: int, modules: int = 11) -> SearchProblem:
    """Modules of four branches (1, 2, 3 and 2 layers), the last two with a fork within; no two modules alike."""
    build = Builder(configurations)
    last = build.layer("stem")
    for module in range(modules):
        heads = [build.layer(module, branch, 0) for branch in range(4)]
        build.tensor(last, zip(heads, ("conv", "conv", "conv", "pool"), strict=True), module)
        tails: list[int] = [heads[0]]
        for branch, length in ((1, 2), (2, 3), (3, 2)):
            node = heads[branch]
            for i in range(1, length):
                after = build.layer(module, branch, i)
                build.tensor(node, [(after, "conv")], module, branch, i)
                node = after
            tails.append(node)
        if module >= modules - 2:
            twins = [build.layer(module, "twin", i) for i in range(2)]
            build.tensor(tails.pop(1), [(twin, "conv") for twin in twins], module, "twin")
            tails += twins
        end = build.layer(module, "concat")
        for i, tail in enumerate(tails):
            build.tensor(tail, [(end, "concat")], module, "tail", i)
        last = end
    return build.problem()


def clock(name: str, run: Callable[[], object], repeat: int) -> None:
    """Print the least time of some runs and what came out."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - start)
    extra = f"width {result.width}  {result.candidates:.2e} sums" if hasattr(result, "width") else ""
    print(f"{name:40} {1e3 * min(times):10.2f} ms  {extra}")


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also 700 configurations a layer")
    large = parser.parse_args().large
    for name, make, sizes in (
        ("LeNet-5 (7 nodes)", lambda c: chain(c, 7), (20,)),
        ("AlexNet (12 nodes)", lambda c: chain(c, 12), (20,)),
        ("VGG-16 (22 nodes)", lambda c: chain(c, 22), (20, 200)),
        ("Inception-v3", inception, (20, 200, 700) if large else (20, 200)),
        ("ResNet-152", resnet, (20, 200, 700) if large else (20, 200)),
    ):
        for size in sizes:
            problem = make(size)
            title = f"{name}, C = {size}"
            clock(f"{title}: eliminate", lambda p=problem: eliminate(p), 5 if size < 700 else 1)
            clock(f"{title}: tree bounds", lambda p=problem: tree_bounds(p), 5 if size < 700 else 1)
            clock(f"{title}: eliminate, pruned", lambda p=problem: eliminate_pruned(p), 5 if size < 700 else 1)
    for layers, size in ((6, 9), (7, 9)):
        for cut in (False, True):
            problem = chain(size, layers)
            title = f"chain of {layers}, C = {size}: depth first, prune={cut}"
            clock(title, lambda p=problem, c=cut: depth_first(p, prune=c), 1)


if __name__ == "__main__":
    main()
