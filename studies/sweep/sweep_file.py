"""Sweep files: points as the product of axes, as a list, or both; constraints leave some of them out."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd
from pydantic import ValidationError

from groundwork.errors import ConfigError
from groundwork.input_files import yaml_input
from groundwork.rule_texts import broken_rules
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.compression.data_types import compression
from planner.cost.all_reduce import GRADIENT_SYNCS
from planner.cost.framework import framework_of
from planner.models.registry import check_no_code, load_model
from planner.plan.plan_request import check_plan_text
from studies.sweep.conditions import selected
from studies.sweep.point import SweepPoint, point_columns
from studies.sweep.sweep_schema import SweepFile

MOST_POINTS = 10_000
"""Most points that are computed without ``--yes``."""
_MOST_COMBINATIONS = 1_000_000
"""Most combinations of all axes before constraints; the list of more would take minutes alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Points of a sweep, each once, in the order in which they are computed."""

    name: str
    points: tuple[SweepPoint, ...]


def read_sweep(path: Path, *, most_points: int | None = MOST_POINTS) -> Sweep:
    """Read a sweep file and list its points.

    Args:
        path: YAML file, as docs/sweeps.md describes it.
        most_points: Most points that are allowed; None for any number.

    Raises:
        ConfigError: The file breaks a rule (each with its path), names an unknown model, cluster, strategy, algorithm
            of gradient synchronisation or data type, has no points, or has more than ``most_points``.
    """
    origin = f"sweep file {path}"
    try:
        file = SweepFile.model_validate(yaml_input(path, "sweep file"))
    except ValidationError as error:
        raise ConfigError(f"{origin}: {broken_rules(error, known=_known)}") from None
    _check_names(file)
    points = _points(file, origin)
    if most_points is not None and len(points) > most_points:
        raise ConfigError(f"{origin} has {len(points):,} points, more than {most_points:,}; add --yes to compute them")
    return Sweep(name=file.name, points=points)


def _known(location: Sequence[int | str]) -> Sequence[str]:
    """Return the keys that are allowed at a place of the file."""
    return tuple(SweepFile.model_fields) if len(location) == 1 else ()


def _check_names(file: SweepFile) -> None:
    """Refuse unknown names at once, with which every point would fail."""
    for model in {*file.models, *(point.model for point in file.points)}:
        check_no_code("", model)
        load_model(model, batch=1)
    for strategy in {*file.strategies, *(point.strategy for point in file.points)}:
        check_plan_text(strategy)
    for gradient_sync in {*file.gradient_sync, *(point.gradient_sync for point in file.points)}:
        if gradient_sync and gradient_sync not in GRADIENT_SYNCS:
            raise ConfigError(f"gradient_sync must be one of {', '.join(GRADIENT_SYNCS)}, got {gradient_sync!r}")
    for framework in {*file.framework, *(point.framework for point in file.points)} - {""}:
        framework_of(framework)
    kinds = {kind for row in file.compression for kind in (row.gradients, row.activations)}
    kinds |= {kind for row in file.points for kind in (row.compress_gradients, row.compress_activations)}
    for kind in kinds - {""}:
        compression(kind)


@cache
def _device_count(spec: str) -> int:
    return len(load_cluster(spec).devices)


def _points(file: SweepFile, origin: str) -> tuple[SweepPoint, ...]:
    """Return the points that the constraints allow, each once."""
    batches = file.batch or file.batch_per_device or ()
    sizes = [file.models, batches, file.strategies, file.compression, *file.options.values()]
    combinations = sum(row.count() for row in file.clusters) * math.prod(map(len, sizes))
    if combinations > _MOST_COMBINATIONS:
        raise ConfigError(
            f"{origin} has {combinations:,} combinations, more than {_MOST_COMBINATIONS:,}: give fewer values an axis"
        )
    listed = dict.fromkeys([*_product(file, batches), *(SweepPoint(**row.model_dump()) for row in file.points)])
    for spec in dict.fromkeys(point.cluster for point in listed):
        _device_count(spec)  # refuses an unknown cluster
    points = _allowed(list(listed), file.constraints, origin)
    if not points:
        raise ConfigError(f"{origin} has no points: its constraints leave none of {len(listed):,}")
    return tuple(points)


def _product(file: SweepFile, batches: Iterable[int]) -> Iterator[SweepPoint]:
    """Yield the product of the axes.

    Points that share a cluster and a model follow each other, so that a process that computes them loads both once.
    """
    clusters = [spec for row in file.clusters for spec in row.specs()]
    for cluster, model, batch in itertools.product(clusters, file.models, batches):
        whole = batch * (_device_count(cluster) if file.batch_per_device else 1)
        for strategy, compressed, *values in itertools.product(
            file.strategies, file.compression, *file.options.values()
        ):
            yield SweepPoint(
                model=model,
                cluster=cluster,
                batch=whole,
                strategy=strategy,
                compress_gradients=compressed.gradients,
                compress_activations=compressed.activations,
                **dict(zip(file.options, values, strict=True)),
            )


def _allowed(points: list[SweepPoint], constraints: Iterable[str], origin: str) -> list[SweepPoint]:
    """Return the points that meet all constraints."""
    if not constraints:
        return points
    frame = pd.DataFrame(point_columns(point) for point in points)
    frame["devices"] = [_device_count(point.cluster) for point in points]
    frame["batch_per_device"] = frame["batch"] / frame["devices"]
    for constraint in constraints:
        frame = frame.loc[selected(frame, constraint, f"{origin}: constraint")]
    return [points[row] for row in frame.index]
