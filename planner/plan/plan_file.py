"""Plans as files: flat JSON with a version, written whole or not at all.

A file holds the fields of ``PlanRequest``, then the results of ``Plan``; a field that is added to either is written and
read without a change here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, get_type_hints

import msgspec
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from groundwork.errors import ConfigError
from groundwork.input_files import AnyPath, json_input
from groundwork.rule_texts import broken_rules
from groundwork.whole_files import replacing
from planner.layouts.configuration_rows import ConfigurationRow, configurations_of, rows_of
from planner.layouts.mesh import Mesh
from planner.models.registry import check_no_code
from planner.plan.plan import Plan
from planner.plan.plan_request import PlanRequest
from planner.strategies.micro_batches import ORDERS, MicroBatching
from planner.strategies.pipeline_schedule import PIPELINE_SCHEDULES
from planner.strategies.recomputation import Recompute

PLAN_VERSION = 2
_RESULTS = tuple(each for each in fields(Plan) if each.name not in ("request", "recompute"))
"""Fields of a plan that a file holds as they are."""


def save_plan(plan: Plan, path: AnyPath) -> None:
    """Write a plan; what was at ``path`` stays until the new file is whole.

    Raises:
        ConfigError: The file cannot be written.
    """
    content: dict[str, Any] = {"version": PLAN_VERSION}
    content |= {field.name: getattr(plan.request, field.name) for field in fields(PlanRequest)}
    content |= {field.name: getattr(plan, field.name) for field in _RESULTS}
    content |= {f"recompute_{each.name}": getattr(plan.recompute, each.name) for each in fields(Recompute)}
    content["configurations"], meshes = rows_of(plan.configurations)
    content |= {"meshes": meshes} if meshes else {}
    try:
        with replacing(path) as beside:
            beside.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))
    except OSError as error:
        raise ConfigError(f"plan file {path} cannot be written: {error.strerror}") from error


def load_plan(path: AnyPath) -> Plan:
    """Read a plan.

    Raises:
        ConfigError: The file cannot be read, is cut off, of another version, or breaks a rule; the message
            names all of them with their fields.
    """
    content = json_input(path, "plan file")
    version = content.get("version") if isinstance(content, dict) else None
    if version == 1:
        raise ConfigError(f"plan file {path} has version 1, which Orrery 0.1 wrote: make it again by orrery plan")
    if type(version) is int and version != PLAN_VERSION:
        raise ConfigError(f"plan file {path} has version {version}, this program reads {PLAN_VERSION}")
    try:
        values = dict(_file_model().model_validate_json(msgspec.json.encode(content)))
        return _plan(values)
    except ValidationError as error:
        raise ConfigError(f"plan file {path}: {broken_rules(error, known=_known)}") from None
    except ConfigError as error:
        raise ConfigError(f"plan file {path}: {error}") from None


@cache
def _file_model() -> type[BaseModel]:
    """Return the model that a file is checked against: the fields of a request and of a plan, side by side."""
    columns = {**_columns(PlanRequest, fields(PlanRequest)), **_columns(Plan, _RESULTS)}
    columns |= {f"recompute_{name}": row for name, row in _columns(Recompute, fields(Recompute)).items()}
    columns |= {"configurations": (dict[str, ConfigurationRow], ...), "meshes": (tuple[Mesh, ...], ())}
    config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())
    model: type[BaseModel] = create_model("PlanFile", __config__=config, version=(int, ...), **columns)
    return model


def _columns(kind: type, chosen: Iterable[Field[Any]]) -> dict[str, Any]:
    """Return the type and default of the chosen fields of a dataclass, as pydantic takes them."""
    hints = get_type_hints(kind)
    return {each.name: (hints[each.name], _default(each)) for each in chosen}


def _default(field: Field[Any]) -> Any:
    """Return the default of a field as pydantic takes it: ``...`` where the field is required."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    return ... if field.default is MISSING else field.default


def _plan(values: dict[str, Any]) -> Plan:
    """Return the plan of a file's checked values.

    Raises:
        ConfigError: The request breaks a rule, or the micro-batches do.
    """
    check_no_code("", values["model"])
    _check_micro_batching(values["micro_batching"], values["batch"])
    values["configurations"] = configurations_of(values["configurations"], values["meshes"])
    return Plan(
        request=PlanRequest(**{each.name: values[each.name] for each in fields(PlanRequest)}),
        recompute=Recompute(*(values[f"recompute_{each.name}"] for each in fields(Recompute))),
        **{each.name: values[each.name] for each in _RESULTS},
    )


def _check_micro_batching(micro_batching: MicroBatching, batch: int) -> None:
    """Refuse an unknown order of micro-batches, a number that does not divide the batch, and layers before the first.

    As many micro-batches as a file may name would else be lowered, which takes minutes and gigabytes.
    """
    orders = (*ORDERS, *PIPELINE_SCHEDULES)
    if micro_batching.order not in orders:
        raise ConfigError(f"micro_batching.order must be one of {', '.join(orders)}, got {micro_batching.order!r}")
    if micro_batching.parts < 1 or min(micro_batching.starts) < 0:
        raise ConfigError(f"micro_batching must have parts >= 1 and layers >= 0, got {micro_batching}")
    if batch % micro_batching.parts:
        raise ConfigError(f"micro_batching.parts must divide the batch of {batch:,}, got {micro_batching.parts:,}")


def _known(location: Sequence[int | str]) -> Sequence[str]:
    """Return the keys that are allowed at a place of the file."""
    return ("degrees", "devices", "mesh", "splits") if len(location) > 1 else tuple(_file_model().model_fields)
