"""Sweep files: points as the product of axes, as a list, or both; constraints leave some of them out."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pandas as pd
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from groundwork.errors import ConfigError
from groundwork.file_fields import SomeTexts, Switch, Whole, one_or_more
from groundwork.input_files import yaml_input
from groundwork.rule_texts import broken_rules
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.compression.data_types import compression
from planner.cost.all_reduce import GRADIENT_SYNCS
from planner.cost.framework import framework_of
from planner.models.registry import check_no_code, load_model
from planner.plan.plan_options import Precision
from planner.plan.plan_request import check_plan_text
from studies.sweep.conditions import selected
from studies.sweep.point import SweepPoint, point_columns

Wholes = Annotated[tuple[Whole, ...], Field(min_length=1), BeforeValidator(one_or_more)]
_Value = Annotated[float, Field(allow_inf_nan=False, strict=True)]
_Values = Annotated[tuple[_Value, ...], Field(min_length=1), BeforeValidator(one_or_more)]


class _Strict(BaseModel):
    """Base of models that refuse unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class _Clusters(_Strict):
    """One or several clusters, with values for their parameters and changes."""

    cluster: SomeTexts
    given: dict[str, _Values] = Field(default={}, alias="with")

    def specs(self) -> Iterator[str]:
        """Yield the clusters with their parameters, as ``load_cluster`` takes them."""
        for name in self.cluster:
            for values in itertools.product(*self.given.values()):
                text = ",".join(f"{key}={value:.17g}" for key, value in zip(self.given, values, strict=True))
                yield _spec(name, text)

    def count(self) -> int:
        """Return the number of clusters."""
        return len(self.cluster) * math.prod(map(len, self.given.values()))


def _spec(name: str, assignments: str) -> str:
    if not assignments:
        return name
    return f"{name},{assignments}" if ":" in name else f"{name}:{assignments}"


class _Compression(_Strict):
    """Data types of gradients and activations in messages; empty for float32."""

    gradients: str = ""
    activations: str = ""


_none = BeforeValidator(lambda value: {} if value == "none" else value)
_named = BeforeValidator(lambda value: {"cluster": value} if isinstance(value, str) else value)
Compressions = Annotated[tuple[Annotated[_Compression, _none], ...], Field(min_length=1), BeforeValidator(one_or_more)]
Precisions = Annotated[tuple[Precision, ...], Field(min_length=1), BeforeValidator(one_or_more)]
Switches = Annotated[tuple[Switch, ...], Field(min_length=1), BeforeValidator(one_or_more)]
Clusters = Annotated[tuple[Annotated[_Clusters, _named], ...], BeforeValidator(one_or_more)]


class SweepFile(_Strict):
    """Content of a sweep file."""

    version: Literal[1]
    name: Annotated[str, Field(min_length=1)]
    models: Annotated[tuple[str, ...], BeforeValidator(one_or_more)] = ()
    clusters: Clusters = ()
    batch: Wholes | None = None
    batch_per_device: Wholes | None = None
    strategies: Annotated[tuple[str, ...], BeforeValidator(one_or_more)] = ()
    gradient_sync: SomeTexts = ("",)
    framework: SomeTexts = ("",)
    dtype: Precisions = ("float32",)
    interference: Switches = (None,)
    spread: Switches = (None,)
    batch_norm: SomeTexts = ("local",)
    compression: Compressions = (_Compression(),)
    sub_batches: Wholes = (1,)
    constraints: SomeTexts | tuple[()] = ()
    points: tuple[SweepPoint, ...] = ()

    @property
    def options(self) -> dict[str, tuple[Any, ...]]:
        """Values of the axes that every strategy has, by the field of a point; compression has two."""
        names = ("gradient_sync", "framework", "dtype", "interference", "spread", "batch_norm", "sub_batches")
        return {name: getattr(self, name) for name in names}

    @model_validator(mode="after")
    def _has_points(self) -> Self:
        """Check that the axes are complete, or that there are listed points."""
        batch = self.batch or self.batch_per_device
        axes = {"models": self.models, "clusters": self.clusters, "strategies": self.strategies, "batch": batch}
        missing = [name for name, values in axes.items() if not values]
        if self.batch and self.batch_per_device:
            raise ValueError("needs one of batch and batch_per_device, got both")
        if missing and len(missing) < len(axes):
            rule = "needs models, clusters, strategies, and batch or batch_per_device, or none of them"
            raise ValueError(f"{rule}, got no {', no '.join(missing)}")
        if not any(axes) and not self.points:
            raise ValueError("needs axes (models, clusters, ...) or points, got neither")
        return self


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

    def known(location: Sequence[int | str]) -> Sequence[str]:
        return tuple(SweepFile.model_fields) if len(location) == 1 else ()

    try:
        file = SweepFile.model_validate(yaml_input(path, "sweep file"))
    except ValidationError as error:
        raise ConfigError(f"{origin}: {broken_rules(error, known=known)}") from None
    _check_names(file)
    points = _points(file, origin)
    if most_points is not None and len(points) > most_points:
        raise ConfigError(f"{origin} has {len(points):,} points, more than {most_points:,}; add --yes to compute them")
    return Sweep(name=file.name, points=points)


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
    listed = dict.fromkeys([*_product(file, batches), *file.points])
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
    if not constraints:
        return points
    frame = pd.DataFrame(point_columns(point) for point in points)
    frame["devices"] = [_device_count(point.cluster) for point in points]
    frame["batch_per_device"] = frame["batch"] / frame["devices"]
    for constraint in constraints:
        frame = frame.loc[selected(frame, constraint, f"{origin}: constraint")]
    return [points[row] for row in frame.index]
