"""Sweep files: axes whose product, or a list, makes the points; constraints that leave some out."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pandas as pd
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from hwprofiles import ConfigError
from hwprofiles.catalogue import load_cluster
from planner.compression import compression
from planner.cost import GRADIENT_SYNCS
from planner.models import load_model
from planner.parallel import check_strategy
from studies.sweep.point import SweepPoint, point_columns

__all__ = ["MOST_POINTS", "Sweep", "read_sweep"]

MOST_POINTS = 10_000
"""More are computed only when asked for twice."""
_MOST_COMBINATIONS = 1_000_000
"""Of all axes, before constraints: more would take minutes only to be listed."""


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _strict(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("must be a whole number")
    return value


_Words = Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_listed)]
Whole = Annotated[int, Field(ge=1), BeforeValidator(_strict)]
Wholes = Annotated[tuple[Whole, ...], Field(min_length=1), BeforeValidator(_listed)]
_Value = Annotated[float, Field(allow_inf_nan=False, strict=True)]
_Values = Annotated[tuple[_Value, ...], Field(min_length=1), BeforeValidator(_listed)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class _Clusters(_Strict):
    """One or several clusters, and values for their parameters and changes."""

    cluster: _Words
    given: dict[str, _Values] = Field(default={}, alias="with")

    def specs(self) -> Iterator[str]:
        for name in self.cluster:
            for values in itertools.product(*self.given.values()):
                text = ",".join(f"{key}={value:.17g}" for key, value in zip(self.given, values, strict=True))
                yield _spec(name, text)

    def count(self) -> int:
        return len(self.cluster) * math.prod(map(len, self.given.values()))


def _spec(name: str, assignments: str) -> str:
    if not assignments:
        return name
    return f"{name},{assignments}" if ":" in name else f"{name}:{assignments}"


class _Compression(_Strict):
    gradients: str = ""
    activations: str = ""


def _coded(value: object) -> object:
    return {} if value == "none" else value


def _cluster(value: object) -> object:
    return {"cluster": value} if isinstance(value, str) else value


class _ListedPoint(_Strict):
    model: str
    cluster: str
    batch: Whole
    strategy: str
    gradient_sync: str = "ring"
    batch_norm: str = "local"
    compress_gradients: str = ""
    compress_activations: str = ""
    sub_batches: Whole = 1


Compressions = Annotated[
    tuple[Annotated[_Compression, BeforeValidator(_coded)], ...],
    Field(min_length=1),
    BeforeValidator(_listed),
]
Clusters = Annotated[tuple[Annotated[_Clusters, BeforeValidator(_cluster)], ...], BeforeValidator(_listed)]


class SweepFile(_Strict):
    """The content of a sweep file."""

    version: Literal[1]
    name: Annotated[str, Field(min_length=1)]
    models: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    clusters: Clusters = ()
    batch: Wholes | None = None
    batch_per_device: Wholes | None = None
    strategies: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    gradient_sync: _Words = ("ring",)
    batch_norm: _Words = ("local",)
    compression: Compressions = (_Compression(),)
    sub_batches: Wholes = (1,)
    constraints: _Words | tuple[()] = ()
    points: tuple[_ListedPoint, ...] = ()

    @model_validator(mode="after")
    def _has_points(self) -> Self:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The points of a sweep, each once, in the order in which they are computed."""

    name: str
    points: tuple[SweepPoint, ...]


def read_sweep(path: Path, *, most_points: int | None = MOST_POINTS) -> Sweep:
    """Read a sweep file and list its points.

    Args:
        path: YAML, as docs/sweeps.md describes it.
        most_points: More are refused; None for any number.

    Raises:
        ConfigError: The file breaks a rule (each with its path), names a model, cluster, strategy, exchange or data
            type that there is not, has no points, or more than ``most_points``.
    """
    origin = f"sweep file {path}"
    try:
        file = SweepFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"{origin} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{origin} is not YAML or is cut off: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise ConfigError(f"{origin}: {_one_line(error)}") from None
    _check_names(file)
    points = _points(file, origin)
    if most_points is not None and len(points) > most_points:
        raise ConfigError(f"{origin} has {len(points):,} points, more than {most_points:,}; add --yes to compute them")
    return Sweep(name=file.name, points=points)


def _one_line(error: ValidationError) -> str:
    return "; ".join(_rule(dict(row)) for row in error.errors())


def _rule(row: Mapping[str, Any]) -> str:
    """A broken rule: where, which, and what was got; for a key that there is not, those that there are."""
    where = ".".join(map(str, row["loc"]))
    if row["type"] == "extra_forbidden":
        known = f", must be one of {', '.join(SweepFile.model_fields)}" if len(row["loc"]) == 1 else ""
        return f"{where}: unknown key{known}, got {row['input']!r}"
    rule = re.sub("^(Input|Tuple) should", "must", row["msg"].removeprefix("Value error, "))
    got = "" if isinstance(row["input"], Mapping) else f", got {row['input']!r}"
    return f"{where}: {rule}{got}" if where else f"{rule}{got}"


def _check_names(file: SweepFile) -> None:
    """Refuse at once what would make every point with it fail."""
    for model in {*file.models, *(point.model for point in file.points)}:
        load_model(model, batch=1)
    for strategy in {*file.strategies, *(point.strategy for point in file.points)}:
        check_strategy(strategy)
    for gradient_sync in {*file.gradient_sync, *(point.gradient_sync for point in file.points)}:
        if gradient_sync not in GRADIENT_SYNCS:
            raise ConfigError(f"gradient_sync must be one of {', '.join(GRADIENT_SYNCS)}, got {gradient_sync!r}")
    kinds = {kind for row in file.compression for kind in (row.gradients, row.activations)}
    kinds |= {kind for row in file.points for kind in (row.compress_gradients, row.compress_activations)}
    for kind in kinds - {""}:
        compression(kind)


@cache
def _device_count(spec: str) -> int:
    return len(load_cluster(spec).devices)


def _points(file: SweepFile, origin: str) -> tuple[SweepPoint, ...]:
    batches = file.batch or file.batch_per_device or ()
    sizes = [
        file.models,
        batches,
        file.strategies,
        file.gradient_sync,
        file.batch_norm,
        file.compression,
        file.sub_batches,
    ]
    combinations = sum(row.count() for row in file.clusters) * math.prod(map(len, sizes))
    if combinations > _MOST_COMBINATIONS:
        raise ConfigError(
            f"{origin} has {combinations:,} combinations, more than {_MOST_COMBINATIONS:,}: give fewer values an axis"
        )
    found = dict.fromkeys([*_product(file, batches), *(SweepPoint(**row.model_dump()) for row in file.points)])
    for spec in dict.fromkeys(point.cluster for point in found):
        _device_count(spec)  # a cluster that there is not is refused here
    points = _allowed(list(found), file.constraints, origin)
    if not points:
        raise ConfigError(f"{origin} has no points: its constraints leave none of {len(found):,}")
    return tuple(points)


def _product(file: SweepFile, batches: Iterable[int]) -> Iterator[SweepPoint]:
    """Points that share a cluster and a model follow each other, so that whoever computes them has both at hand."""
    clusters = [spec for row in file.clusters for spec in row.specs()]
    rest = (file.strategies, file.gradient_sync, file.batch_norm, file.compression, file.sub_batches)
    for cluster, model, batch in itertools.product(clusters, file.models, batches):
        whole = batch * (_device_count(cluster) if file.batch_per_device else 1)
        for strategy, gradient_sync, batch_norm, coded, sub_batches in itertools.product(*rest):
            yield SweepPoint(
                model=model, cluster=cluster, batch=whole, strategy=strategy, gradient_sync=gradient_sync,
                batch_norm=batch_norm, compress_gradients=coded.gradients,
                compress_activations=coded.activations, sub_batches=sub_batches,
            )  # fmt: skip


def _allowed(points: list[SweepPoint], constraints: Iterable[str], origin: str) -> list[SweepPoint]:
    if not constraints:
        return points
    frame = pd.DataFrame(point_columns(point) for point in points)
    frame["devices"] = [_device_count(point.cluster) for point in points]
    frame["batch_per_device"] = frame["batch"] / frame["devices"]
    for constraint in constraints:
        frame = frame.loc[selected(frame, constraint, f"{origin}: constraint")]
    return [points[row] for row in frame.index]


def selected(frame: pd.DataFrame, condition: str, what: str) -> "pd.Series[bool]":
    """Which rows of a frame meet a condition such as ``devices <= 96 and strategy != 'data'``.

    Raises:
        ConfigError: The condition cannot be read, names a column that there is not, or is no condition.
    """
    problem = "must compare columns"
    if "@" not in condition and "__" not in condition:  # pandas would reach beyond the frame
        try:
            kept = frame.eval(condition, engine="python")
            if isinstance(kept, pd.Series) and kept.dtype == bool:
                return kept
        except Exception as error:  # pandas raises whatever the expression makes it raise
            problem = f"cannot be used ({' '.join(str(error).split())})"
    known = ", ".join(map(str, frame.columns))
    raise ConfigError(f"{what} {condition!r} {problem}; columns are {known}")
