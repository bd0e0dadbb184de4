"""Programs priced by the times of parts of layers that were sampled while they ran."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from executor.probe.rows import ProbeRow
from planner.program import KINDS, Program
from planner.regions import held

__all__ = ["with_samples"]


def with_samples(program: Program, rows: Sequence[ProbeRow]) -> Program:
    """The program with the median sample of every part as the length of its tasks.

    Args:
        program: Lowered on any profile.
        rows: Samples of every part of its layers, by one rank or several; where there are none, it stays as it is.
    """
    if not rows:
        return program
    samples: dict[tuple[str, tuple[int, ...], str], list[float]] = defaultdict(list)
    for row in rows:
        for layer in row.layers:
            samples[layer, row.sizes, row.phase] += row.samples.seconds
    known = {key: float(np.median(seconds)) for key, seconds in samples.items()}
    layers, boxes = program.graph.layers, [held(space) for space in program.spaces]
    work_s = program.work_s.copy()
    for task in np.flatnonzero(program.is_compute).tolist():
        i, part = int(program.layer[task]), int(program.part[task])
        sizes = tuple((boxes[i].high[part] - boxes[i].low[part]).tolist())
        work_s[task] = known[layers[i].name, sizes, KINDS[program.kind[task]]]
    return replace(program, work_s=work_s)
