"""What a part is said to need of its input holds all that its derivatives depend on."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the importer needs torch")

from importing.imported_modules import CASES, traced  # noqa: E402

from planner.graph.computation_graph import ComputationGraph  # noqa: E402
from planner.importing.graph_of import imported_graph  # noqa: E402


def places(mask: np.ndarray) -> list[np.ndarray]:
    """Return the indices of every dimension at which a mask has some element."""
    others = [tuple(j for j in range(mask.ndim) if j != d) for d in range(mask.ndim)]
    return [np.flatnonzero(mask.any(axis=rest)) for rest in others]


def claimed(graph: ComputationGraph, low: tuple[int, ...], high: tuple[int, ...]) -> np.ndarray:
    """Return the elements of the data that a box of the last layer's output is said to need."""
    masks = {layer.name: np.zeros(layer.output.sizes, dtype=bool) for layer in graph.layers}
    masks["input"] = np.zeros(graph.layers[0].input_shapes[0].sizes, dtype=bool)
    masks[graph.layers[-1].name][tuple(map(slice, low, high))] = True
    for layer in reversed(graph.layers):
        if not masks[layer.name].any():
            continue
        box = {d: (p[0], p[-1] + 1) for d, p in zip(layer.output.dims, places(masks[layer.name]), strict=True)}
        for slot, (source, shape) in enumerate(zip(layer.inputs, layer.input_shapes, strict=True)):
            region = []
            for each, size in zip(layer.operation.interval_maps(slot, layer.input_shapes), shape.sizes, strict=True):
                first, last = box.get(each.dim, (0, 1))  # of what is summed over, and of all, each part needs all
                region.append(slice(*(int(x) for x in each.interval(np.array(first), np.array(last), size))))
            masks[source][tuple(region)] = True
    return masks["input"]


@pytest.mark.parametrize("name", CASES)
def test_parts_need_what_their_derivatives_depend_on(name):
    """The region of every half, quarter ... holds all inputs with a derivative; where it can be exact, no more."""
    case = CASES[name]
    torch.manual_seed(0)
    module = case.make().double()
    data = torch.randn(case.shape, dtype=torch.float64, requires_grad=True)
    output = module(data)
    graph = imported_graph(traced(name), name=name, loss="none").graph
    canonical = output.movedim(-1, 1) if case.last else output
    canonical = canonical.reshape(graph.layers[-1].output.sizes)  # sizes of 1 may be added
    assert graph.parameter_count == sum(p.numel() for p in module.parameters())

    cuts = [[(0, size // 2), (size // 2, size)] if size > 1 else [(0, 1)] for size in canonical.shape]
    for box in itertools.islice(itertools.product(*cuts), 0, None, 5):
        low, high = zip(*box, strict=True)
        part = canonical[tuple(slice(*pair) for pair in box)]
        (gradient,) = torch.autograd.grad((part * torch.rand_like(part)).sum(), data, retain_graph=True)
        true = ((gradient.movedim(-1, 1) if case.last else gradient) != 0).numpy()
        said = claimed(graph, low, high)
        assert not (true & ~said).any()
        if case.exact:
            hull = tuple(slice(p[0], p[-1] + 1) for p in places(true))
            boxed = np.zeros_like(true)
            boxed[hull] = True
            assert (said == boxed).all()
