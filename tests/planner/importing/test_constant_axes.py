"""Axes of a parameter that the axes of a result are, found by sizes that differ."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="the importer needs torch")

from planner.importing.constants import Fixed, computed  # noqa: E402

SIZES = (2, 3, 5)
OF_ALL = SimpleNamespace(pointwise=False, results=())


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        *(("unsqueeze", {"dim": dim}) for dim in range(-4, 4)),
        *(("select", {"dim": dim, "index": 1}) for dim in range(-3, 3)),
        *(("permute", {"dims": dims}) for dims in ((2, 0, 1), (-1, 0, -2))),
        *(("transpose", {"dim0": 0, "dim1": dim}) for dim in (2, -2)),
    ],
)
def test_axes_are_followed_through_views(call, arguments):
    axes = tuple(("weight", axis) for axis in range(3))
    source = Fixed(SIZES, ("weight",), call="parameter", origin=axes)
    shape = tuple(getattr(torch.zeros(SIZES), call)(*arguments.values()).shape)

    found = computed(OF_ALL, call, {"self": source} | arguments, shape, None)

    assert found.origin == tuple(axes[SIZES.index(size)] if size > 1 else None for size in shape)
