"""Values that every rank knows of every other."""

from typing import TypeVar

import torch.distributed as dist

_Value = TypeVar("_Value")


def of_all_ranks(value: _Value) -> list[_Value]:
    """Return the values of all ranks, in their order; all ranks must call it together."""
    values = [value] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values
