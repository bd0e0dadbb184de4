"""All comparisons computed, those that take long in parallel processes."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import NamedTuple

from groundwork.errors import ConfigError
from groundwork.progress import Progress
from studies.fidelity.calibrated_collectives import calibrated_rows
from studies.fidelity.collective_times import collective_rows
from studies.fidelity.judged_row import KINDS_JUDGED, JudgedRow
from studies.fidelity.many_gpu_training import many_gpu_rows
from studies.fidelity.one_gpu_training import one_gpu_rows
from studies.fidelity.own_measurements import own_kernel_rows, own_training_rows
from studies.fidelity.peak_memory import memory_rows
from studies.fidelity.planned_transformers import gpt_rows, nanotron_rows, sharded_rows
from studies.fidelity.single_kernels import kernel_rows
from studies.reproduce.papers import reproduce
from studies.reproduce.rows import PaperRow
from studies.sweep.workers import DIED, compute_in_processes


class _Job(NamedTuple):
    """Comparisons that one process computes together."""

    kind: str
    part: str = ""
    """Paper, table or way to train; empty for the whole kind."""


_JOBS = (
    _Job("kernels"),
    _Job("kernels", "h200"),
    _Job("one-gpu", "tf_cnn_single_gpu"),
    _Job("one-gpu", "mxnet_single_gpu"),
    _Job("one-gpu", "tf_benchmarks_2017"),
    _Job("one-gpu", "cnn_benchmarks"),
    _Job("one-gpu", "convnet_benchmarks_models"),
    _Job("one-gpu", "pytorch_resnet50"),
    _Job("one-gpu", "h200"),
    _Job("many-gpu"),
    _Job("collectives"),
    _Job("collectives", "calibrated"),
    _Job("transformers", "gpt"),
    _Job("transformers", "sharded"),
    _Job("transformers", "nanotron"),
    _Job("memory"),
    *(_Job("papers", paper) for paper in ("deepa", "layerwise", "eight-bit", "paradl", "turbodl")),
)
"""All jobs in the order of their rows."""
_LONGEST = (
    *("nanotron", "sharded", "gpt", "calibrated", "deepa", "layerwise", "mxnet_single_gpu"),
    *("eight-bit", "turbodl", "paradl"),
)
"""Jobs that begin first, since the others fill the gaps behind them."""
_QUICK = ("kernels", "many-gpu")
"""Kinds whose rows take less time than starting processes."""
_TRANSFORMERS: dict[str, Callable[[], Iterable[JudgedRow]]] = {
    "gpt": gpt_rows,
    "sharded": sharded_rows,
    "nanotron": nanotron_rows,
}
_ROWS: dict[str, Callable[[str], Iterable[JudgedRow]]] = {
    "kernels": lambda part: own_kernel_rows() if part else kernel_rows(),
    "one-gpu": lambda part: own_training_rows() if part == "h200" else one_gpu_rows(part),
    "many-gpu": lambda _: many_gpu_rows(),
    "collectives": lambda part: calibrated_rows() if part else collective_rows(),
    "transformers": lambda part: _TRANSFORMERS[part](),
    "memory": lambda _: memory_rows(),
    "papers": lambda part: paper_rows(part),
}


def judged_rows(only: str | None = None, *, processes: int = 0, progress: Progress | None = None) -> list[JudgedRow]:
    """Compute the rows of all comparisons, or of one kind.

    Raises:
        ConfigError: The kind is unknown, or a process died.
    """
    if only and only not in KINDS_JUDGED:
        raise ConfigError(f"only must be one of {', '.join(KINDS_JUDGED)}, got {only!r}")
    jobs = [job for job in _JOBS if only in (None, job.kind)]
    done = dict[_Job, list[JudgedRow]]()
    count = min(processes or os.cpu_count() or 1, len(jobs))
    if count == 1 or only in _QUICK:
        for job in jobs:
            done[job] = _computed(job)
            _report(progress, done, jobs)
    else:
        rank = {name: i for i, name in enumerate(_LONGEST)}
        order = sorted(jobs, key=lambda job: rank.get(job.part, len(rank)))
        with closing(compute_in_processes(order, processes=count, evaluate=_computed, died=_died)) as results:
            for job, rows in results:
                done[job] = rows
                _report(progress, done, jobs)
    return [row for job in jobs for row in done[job]]


def _computed(job: _Job) -> list[JudgedRow]:
    return list(_ROWS[job.kind](job.part))


def _died(job: _Job) -> list[JudgedRow]:
    """Refuse to go on without the rows of a job."""
    raise ConfigError(f"fidelity of {' '.join(job).strip()} has no result: {DIED}")


def _report(progress: Progress | None, done: dict[_Job, list[JudgedRow]], jobs: list[_Job]) -> None:
    """Report how many jobs are done."""
    if progress:
        progress("comparing", len(done), len(jobs))


_CLOCKED = ("depth-first search", "elimination", "search time")
"""Words of the rows for which a search is run and its time is measured here."""


def paper_rows(paper: str) -> Iterator[JudgedRow]:
    """Yield the printed values of a paper that this project computes.

    Two ends of a range are two rows.  Values that have no ratio count as equal or as not predicted: configurations and
    other texts, bounds, and zeros.
    """
    for row in reproduce(paper):
        if row.unit == "s" and any(word in row.source for word in _CLOCKED):
            continue  # a time of this machine, which differs from run to run
        for end, (printed, ours) in _pairs(row):
            yield JudgedRow(
                measure="tables of papers",
                comparison=f"paper {paper}",
                label=f"{row.source.partition(', ')[2]}{end} [{row.unit}]",
                group=paper,
                measured=printed,
                predicted=ours,
                reason=f"printed {_text(row.printed)}, ours {_text(row.ours)}: {row.note}",
            )


def _text(value: float | str) -> str:
    """Return a value in few digits."""
    return value if isinstance(value, str) else f"{value:.4g}"


def _pairs(row: PaperRow) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield (what it is, (printed, ours)) for a row; (1, NaN) for values that differ and have no ratio."""
    printed, ours = row.printed, row.ours
    if isinstance(printed, float) and isinstance(ours, float):
        if printed > 0 and ours > 0:
            yield "", (printed, ours)
        else:
            yield "", (1.0, 1.0 if printed == ours else float("nan"))
        return
    ends = _ends(str(printed)), _ends(str(ours))
    if ends[0] and ends[1]:
        for i, name in enumerate((", low end", ", high end")):
            yield name, (ends[0][i], ends[1][i])
        return
    kept = row.note.startswith(("equal", "as printed"))
    yield "", (1.0, 1.0 if kept else float("nan"))


def _ends(text: str) -> tuple[float, float] | None:
    """Return the two ends of a range of positive numbers, or None."""
    try:
        low, high = (float(end) for end in text.split("-"))
    except ValueError:
        return None
    return (low, high) if low > 0 and high > 0 else None
