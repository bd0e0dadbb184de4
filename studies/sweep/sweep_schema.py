"""Keys of a sweep file with their types, and the rules that hold between them."""

import itertools
import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from planner.plan.plan_options import Precision


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
    """Base of models that refuse unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class _Clusters(_Strict):
    """One or several clusters, with values for their parameters and changes."""

    cluster: _Words
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


def _compression(value: object) -> object:
    return {} if value == "none" else value


def _cluster(value: object) -> object:
    return {"cluster": value} if isinstance(value, str) else value


class _ListedPoint(_Strict):
    """A point that the file lists."""

    model: str
    cluster: str
    batch: Whole
    strategy: str
    gradient_sync: str = ""
    framework: str = ""
    dtype: Precision = "float32"
    interference: Annotated[bool | None, Field(strict=True)] = None
    spread: Annotated[bool | None, Field(strict=True)] = None
    batch_norm: str = "local"
    compress_gradients: str = ""
    compress_activations: str = ""
    sub_batches: Whole = 1


Compressions = Annotated[
    tuple[Annotated[_Compression, BeforeValidator(_compression)], ...], Field(min_length=1), BeforeValidator(_listed)
]
Precisions = Annotated[tuple[Precision, ...], Field(min_length=1), BeforeValidator(_listed)]
Switch = Annotated[bool | None, Field(strict=True)]
Switches = Annotated[tuple[Switch, ...], Field(min_length=1), BeforeValidator(_listed)]
Clusters = Annotated[tuple[Annotated[_Clusters, BeforeValidator(_cluster)], ...], BeforeValidator(_listed)]


class SweepFile(_Strict):
    """Content of a sweep file."""

    version: Literal[1]
    name: Annotated[str, Field(min_length=1)]
    models: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    clusters: Clusters = ()
    batch: Wholes | None = None
    batch_per_device: Wholes | None = None
    strategies: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    gradient_sync: _Words = ("",)
    framework: _Words = ("",)
    dtype: Precisions = ("float32",)
    interference: Switches = (None,)
    spread: Switches = (None,)
    batch_norm: _Words = ("local",)
    compression: Compressions = (_Compression(),)
    sub_batches: Wholes = (1,)
    constraints: _Words | tuple[()] = ()
    points: tuple[_ListedPoint, ...] = ()

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
