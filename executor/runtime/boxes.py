"""Boxes: half-open regions of a tensor, and the place of one within another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.layouts.regions import Regions


@dataclass(frozen=True, slots=True)
class Box:
    """Indices ``low[d]`` to ``high[d] - 1`` of every dimension d; empty if a ``high[d]`` is at most its ``low[d]``."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    shape: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """Size in each dimension."""

    def __post_init__(self) -> None:
        # Computed once: training loops read the shape of the same boxes in every iteration.
        sizes = tuple(max(high - low, 0) for low, high in zip(self.low, self.high, strict=True))
        object.__setattr__(self, "shape", sizes)

    @classmethod
    def of(cls, regions: Regions, part: int) -> "Box":
        """Return the box of one part of a layer."""
        return cls(tuple(regions.low[part].tolist()), tuple(regions.high[part].tolist()))

    @property
    def elements(self) -> int:
        """Number of elements: the product of the sizes."""
        return math.prod(self.shape)

    def __and__(self, other: "Box") -> "Box":
        """Return the intersection of two boxes."""
        low, high = tuple(map(max, self.low, other.low)), tuple(map(min, self.high, other.high))
        return Box(low, tuple(map(max, low, high)))

    def within(self, outer: "Box") -> tuple[slice, ...]:
        """Return this box as slices of a tensor that holds ``outer``, which must contain it."""
        return tuple(
            slice(low - base, high - base) for low, high, base in zip(self.low, self.high, outer.low, strict=True)
        )


def whole_box(sizes: Sequence[int]) -> Box:
    """Return the box of all indices of a tensor of these sizes."""
    return Box((0,) * len(sizes), tuple(sizes))
