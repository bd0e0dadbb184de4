"""Errors of a profile on kernels that it was not fitted to: whole families are held out, never single rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Floats
from hwprofiles.compute.compute_profile import ComputeProfile
from studies.calibrate.measured_kernels import KernelGroup, log_errors

_FOLDS = 6
_SEED = 0


@dataclass(frozen=True, slots=True)
class HeldOutErrors:
    """Errors of one kind of rows."""

    rows: int
    median: float
    p90: float
    """Nine of ten relative errors are smaller."""
    bias: float
    """Median of the logarithm of predicted over measured times."""


def summary(logs: Floats) -> HeldOutErrors:
    """Return the errors of predictions, from logarithms of predicted over measured times."""
    relative = np.abs(np.expm1(logs))
    return HeldOutErrors(
        len(logs), float(np.median(relative)), float(np.quantile(relative, 0.9)), float(np.median(logs))
    )


def cross_validated(
    groups: Sequence[KernelGroup], fit: Callable[[list[KernelGroup]], ComputeProfile]
) -> dict[str, Floats]:
    """Return the logarithms of predicted over measured times of all kernels, each family held out once.

    Returns:
        By kind of row (``KernelGroup.kind``).
    """
    families = sorted({family for group in groups for family in group.families})
    order = np.random.default_rng(_SEED).permutation(len(families))
    fold_of = {families[index]: place % _FOLDS for place, index in enumerate(order.tolist())}
    found: dict[str, list[Floats]] = {}
    for fold in range(min(_FOLDS, len(families))):
        inside, outside = [], []
        for group in groups:
            held_out = np.array([fold_of[family] == fold for family in group.families])
            outside += [group.only(held_out)] if held_out.any() else []
            inside += [group.only(~held_out)] if not held_out.all() else []
        profile = fit(inside)
        for group in outside:
            found.setdefault(group.kind, []).append(log_errors(profile, [group]))
    return {kind: np.concatenate(errors) for kind, errors in sorted(found.items())}
