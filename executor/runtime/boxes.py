"""Boxes: half-open regions of a tensor, and where one lies within another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Box", "whole_box"]


@dataclass(frozen=True, slots=True)
class Box:
    """Indices ``low[d]`` to ``high[d] - 1`` of every dimension d; empty where a ``high`` does not pass its ``low``."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    shape: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """Size in each dimension."""

    def __post_init__(self) -> None:
        sizes = tuple(max(high - low, 0) for low, high in zip(self.low, self.high, strict=True))
        object.__setattr__(self, "shape", sizes)  # asked for again and again

    @property
    def elements(self) -> int:
        """Product of the sizes."""
        return math.prod(self.shape)

    def __and__(self, other: "Box") -> "Box":
        """The indices in both."""
        low, high = tuple(map(max, self.low, other.low)), tuple(map(min, self.high, other.high))
        return Box(low, tuple(map(max, low, high)))

    def within(self, outer: "Box") -> tuple[slice, ...]:
        """This box as slices of a tensor that holds ``outer``, which must contain it."""
        return tuple(
            slice(low - base, high - base) for low, high, base in zip(self.low, self.high, outer.low, strict=True)
        )


def whole_box(sizes: Sequence[int]) -> Box:
    """All indices of a tensor of these sizes."""
    return Box((0,) * len(sizes), tuple(sizes))
