"""Files of named scenarios: what is trained today, and changes of the cluster that build on one another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from groundwork.errors import ConfigError
from groundwork.file_fields import SomeTexts, Switch, Whole
from groundwork.input_files import yaml_input
from groundwork.rule_texts import broken_rules
from groundwork.suggestions import did_you_mean
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import check_no_code
from planner.plan.plan_options import Precision, SyncAlgorithm
from studies.whatif.scenarios import TODAY, Scenario

_BASE, _BATCH = "from", "batch"
"""Keys of a scenario that are no changes of the cluster."""
_OPTIONS = ("gradient_sync", "dtype", "framework", "software", "interference", "spread")
"""Keys of a file that are fields of ``PlanRequest``."""


class _File(BaseModel):
    """Content of a file of scenarios."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1]
    model: Annotated[str, Field(min_length=1)]
    cluster: Annotated[str, Field(min_length=1)]
    batch: Whole | None = None
    batch_per_device: Whole | None = None
    strategies: SomeTexts = ("data",)
    gradient_sync: SyncAlgorithm | None = None
    dtype: Precision = "float32"
    framework: str | None = None
    software: str = "ideal"
    interference: Switch = None
    spread: Switch = None
    scenarios: Annotated[Mapping[str, Mapping[str, Any]], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_batch(self) -> Self:
        """Raise unless there is one batch."""
        if (self.batch is None) == (self.batch_per_device is None):
            got = "neither" if self.batch is None else "both"
            raise ValueError(f"needs one of batch and batch_per_device, got {got}")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSet:
    """What is trained today, and the scenarios to compare with it."""

    model: str
    cluster: str
    batch: int
    """Mini-batch today, over all devices."""
    strategies: tuple[str, ...]
    options: Mapping[str, Any]
    """Fields of ``PlanRequest``: gradient synchronisation, data type and conditions."""
    scenarios: tuple[Scenario, ...]


def read_scenarios(path: Path) -> ScenarioSet:
    """Read a file of scenarios.

    Raises:
        ConfigError: The file breaks a rule, each with its path, or a scenario builds on an unknown one or on itself.
    """
    origin = f"scenario file {path}"
    try:
        file = _File.model_validate(yaml_input(path, "scenario file"))
    except ValidationError as error:
        keys = tuple(_File.model_fields)
        raise ConfigError(f"{origin}: {broken_rules(error, known=lambda at: keys if len(at) == 1 else ())}") from None
    check_no_code(f"{origin}: ", file.model)
    batch = file.batch or (file.batch_per_device or 1) * len(load_cluster(file.cluster).devices)
    if TODAY in file.scenarios:
        raise ConfigError(f"{origin}: scenarios.{TODAY} must have another name, which today's cluster has")
    scenarios = tuple(_scenario(name, file.scenarios, origin) for name in file.scenarios)
    return ScenarioSet(
        model=file.model,
        cluster=file.cluster,
        batch=batch,
        strategies=tuple(dict.fromkeys(file.strategies)),
        options={name: getattr(file, name) for name in _OPTIONS},
        scenarios=scenarios,
    )


def _scenario(name: str, rows: Mapping[str, Mapping[str, Any]], origin: str) -> Scenario:
    """Return a scenario with the changes of those that it builds on, its own last."""
    changes = _changes(name, rows, origin, ())
    batch = changes.pop(_BATCH, None)
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise ConfigError(f"{origin}: scenarios.{name}.batch must be a whole number >= 1, got {batch!r}")
    texts = tuple(f"{key}={_text(value, f'{origin}: scenarios.{name}.{key}')}" for key, value in changes.items())
    return Scenario(name=name, changes=texts, batch=batch)


def _changes(name: str, rows: Mapping[str, Mapping[str, Any]], origin: str, within: Sequence[str]) -> dict[str, Any]:
    """Return all changes of a scenario by name: its own in place of those of the scenarios that it builds on.

    Raises:
        ConfigError: It builds on itself or on no scenario, or on two that set one change to different values.
    """
    if name in within:
        raise ConfigError(f"{origin}: scenarios.{name} must not build on itself, got {' -> '.join([*within, name])}")
    row, changes, setter = rows[name], dict[str, Any](), dict[str, str]()
    bases = row.get(_BASE, [])
    for base in bases if isinstance(bases, list) else [bases]:
        if not isinstance(base, str) or base not in rows:
            hint = did_you_mean(str(base), rows)
            raise ConfigError(f"{origin}: scenarios.{name}.from must name another scenario, got {base!r}{hint}")
        for key, value in _changes(base, rows, origin, [*within, name]).items():
            if key not in row and changes.get(key, value) != value:
                both = f"{setter[key]} has {changes[key]!r} and {base} has {value!r}"
                raise ConfigError(f"{origin}: scenarios.{name} must set {key} itself, for {both}")
            changes[key], setter[key] = value, base
    return changes | {key: value for key, value in row.items() if key != _BASE}


def _text(value: Any, where: str) -> str:
    """Return the right side of a change as it is typed behind a cluster."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or "," in str(value):
        raise ConfigError(f"{where} must be a number or a word without commas, got {value!r}")
    return f"{value:.17g}" if isinstance(value, float) else str(value)
