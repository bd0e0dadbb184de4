"""Made-up judged rows, and a table of them."""

from functools import cache

import numpy as np

from studies.fidelity.fidelity_table import summarised
from studies.fidelity.judged_row import MEASURES, JudgedRow


def make_row(measured=1.0, predicted=1.0, *, measure="training on one GPU", comparison="table, device", **fields):
    defaults = {"label": "resnet50, batch 32", "group": "device", "subject": "resnet50"}
    return JudgedRow(
        measure=measure, comparison=comparison, measured=measured, predicted=predicted, **(defaults | fields)
    )


@cache
def make_table(*, slower=1.0, groups=4, rows=6, seed=0):
    """A table with rows of every measure; predictions of training on one GPU are ``slower`` times as long."""
    rng = np.random.default_rng(seed)
    made = []
    for measure in MEASURES:
        for group in range(groups):
            off = rng.normal(0.0, 0.1)
            for i in range(rows):
                ratio = np.exp(off + rng.normal(0.0, 0.05))
                ratio *= slower if measure.kind == "one-gpu" else 1.0
                made.append(
                    make_row(
                        1.0,
                        ratio,
                        measure=measure.name,
                        comparison=f"{measure.name} of {group}",
                        group=f"device{group}",
                        profile="other",
                        size=2.0**i,
                        label=f"row {i}, batch {2**i}",
                        fitted=group == 0,
                    )
                )
    made.append(make_row(1.0, float("nan"), comparison="training on one GPU of 1", reason="no <profile> of it"))
    return summarised(made)
