"""Plans as files: JSON with a version, written whole or not at all."""

import contextlib
import difflib
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hwprofiles import ConfigError
from planner.compression import Compressed
from planner.cost import Choice
from planner.parallel import Configuration, MicroBatching, Recompute
from planner.plan.plan import Plan

__all__ = ["PLAN_VERSION", "load_plan", "save_plan"]

PLAN_VERSION = 2
_RENAMED_SINCE_1 = {
    "exchange": "gradient_sync",
    "exchange_order": "gradient_sync_order",
    "exchanges": "gradient_syncs",
    "cut": "micro_batching",
}
"""Fields of version 1 by the names that they have now."""
_APART = ("configurations", "micro_batching", "compressed", "recompute", "gradient_syncs", "notes")
"""Fields that take another form in a plan."""


class _Configuration(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    degrees: dict[str, int]
    devices: list[int]


class _Choice(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    scheme: str
    price_s: float
    runner_up: str
    runner_up_s: float


class _MicroBatching(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    parts: int = Field(default=1, ge=1)
    first: int = Field(default=0, ge=0)
    order: Literal["each", "all", "gpipe", "1f1b", "interleaved", "zero-bubble"] = "each"
    stages: list[Annotated[int, Field(ge=0)]] = []
    update_each: bool = False


class _Compressed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    gradients: str = ""
    activations: str = ""
    gradient_layers: list[str] | None = None
    activation_layers: list[str] | None = None


class _File(BaseModel):
    """What a plan file must hold; names as in ``Plan``."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

    version: int
    model: str
    cluster: str
    batch: int
    strategy: str
    gradient_sync: str
    gradient_sync_order: Literal["end", "ready", "reuse"] = "end"
    batch_norm: Literal["local", "reduced"] = "local"
    element_bytes: Literal[4, 8] = 4
    micro_batching: _MicroBatching = _MicroBatching()
    compressed: _Compressed = _Compressed()
    recompute: list[str] = []
    optimizer: Literal["sgd", "momentum", "adam"] = "momentum"
    configurations: dict[str, _Configuration]
    model_digest: str
    cluster_digest: str
    costs_digest: str
    additive_s: float
    simulated_s: float
    tables_s: float
    search_s: float
    width: int
    gradient_syncs: dict[str, _Choice] = {}
    notes: list[str]


def save_plan(plan: Plan, path: Path) -> None:
    """Write a plan; what was at ``path`` stays until the new file is whole.

    Raises:
        ConfigError: The file cannot be written.
    """
    content: dict[str, Any] = {"version": PLAN_VERSION}
    for name in _File.model_fields:
        if name not in ("version", "configurations", "recompute"):
            content[name] = getattr(plan, name)
    content["recompute"] = list(plan.recompute.ends)
    content["configurations"] = {
        layer: {"degrees": dict(c.degrees), "devices": list(c.devices)} for layer, c in plan.configurations.items()
    }
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))
        os.replace(partial, path)
    except OSError as error:
        raise ConfigError(f"plan file {path} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):  # also where its folder is none
            partial.unlink()


def load_plan(path: Path) -> Plan:
    """Read a plan.

    Raises:
        ConfigError: The file cannot be read, is cut off, of a newer version, or breaks a rule; the message
            names all of them with their fields.
    """
    try:
        content = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"plan file {path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"plan file {path} is not complete JSON: {error}") from error
    version = content.get("version") if isinstance(content, dict) else None
    if type(version) is int and not 1 <= version <= PLAN_VERSION:
        raise ConfigError(f"plan file {path} has version {version}, this program reads 1 to {PLAN_VERSION}")
    if version == 1:
        content = {_RENAMED_SINCE_1.get(name, name): value for name, value in content.items()}
    try:
        checked = _File.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"plan file {path}: {_reasons(error)}") from error
    values = checked.model_dump(exclude={*_APART, "version"})
    configurations = {
        layer: Configuration(row.degrees, tuple(row.devices)) for layer, row in checked.configurations.items()
    }
    gradient_syncs = {layer: Choice(**row.model_dump()) for layer, row in checked.gradient_syncs.items()}
    try:
        compressed = _compressed(checked.compressed)
    except ConfigError as error:
        raise ConfigError(f"plan file {path}: {error}") from None
    return Plan(
        configurations=configurations,
        micro_batching=MicroBatching(
            **checked.micro_batching.model_dump(exclude={"stages"}), stages=tuple(checked.micro_batching.stages)
        ),
        compressed=compressed,
        recompute=Recompute(tuple(checked.recompute)),
        gradient_syncs=gradient_syncs,
        notes=tuple(checked.notes),
        **values,
    )


def _compressed(row: _Compressed) -> Compressed:
    layers = {
        name: None if names is None else tuple(names)
        for name, names in (("gradient_layers", row.gradient_layers), ("activation_layers", row.activation_layers))
    }
    return Compressed(gradients=row.gradients, activations=row.activations, **layers)


def _reasons(error: ValidationError) -> str:
    rows = []
    for row in error.errors():
        field = ".".join(str(part) for part in row["loc"]) or "content"
        known = _Configuration.model_fields if len(row["loc"]) > 1 else _File.model_fields
        unknown = row["type"] == "extra_forbidden"
        near = difflib.get_close_matches(str(row["loc"][-1]), known, n=1) if unknown else []
        rows.append(f"{field}: {row['msg']}" + (f", did you mean {near[0]!r}?" if near else ""))
    return "; ".join(rows)
