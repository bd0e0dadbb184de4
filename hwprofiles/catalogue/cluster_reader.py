"""Reader of cluster files: from YAML, with parameters filled in, to the checked classes of ``cluster_file``."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError

from groundwork.errors import ConfigError
from groundwork.input_files import input_text
from groundwork.input_values import parsed_yaml
from groundwork.rule_texts import broken_rules
from hwprofiles.catalogue.cluster_file import ChoiceRule, ClusterFile, ParameterRule, VertexName
from hwprofiles.catalogue.fabrics import (
    FABRICS,
    ROUTINGS,
    FabricSection,
    Network,
    fabric_levels,
    fabric_parameters,
    has_ways,
)

PARAMETRIC = frozenset(
    {"count", "at_most", "each", "bandwidth_gbyte_per_s", "bandwidth_gbit_per_s", "latency_us", "memory_gib"}
    | {"total", "host_to_device", "device_to_host", "peer"}
    | {"message_us", "byte_ns", "add_byte_ns", "nodes"}
)
"""Keys whose value may be the name of a parameter."""


class _FabricHeader(BaseModel):
    """The name of a file's fabric, which says what other parameters there are."""

    kind: Literal[FABRICS]  # type: ignore[valid-type]


class _Header(BaseModel):
    """The section of a file that must be known before parameters can be filled in."""

    parameters: Mapping[VertexName, ParameterRule] = {}
    fabric: _FabricHeader | None = None


_Model = TypeVar("_Model", bound=BaseModel)
Rule = ParameterRule | ChoiceRule
_ROUTING = "packets over all equal ways, or each pair of devices over one of them"


def read_tree(path: Path) -> Mapping[object, object]:
    """Read a YAML file whose outermost value is a mapping, which nobody may change.

    Raises:
        ConfigError: The file cannot be read, is not YAML, is cut off, or holds no mapping.
    """
    tree = _parsed(input_text(path, "cluster file"), f"cluster file {path}")
    if not isinstance(tree, dict):
        raise ConfigError(f"cluster file {path} must hold a mapping, got {type(tree).__name__}")
    return tree


@lru_cache(maxsize=32)
def _parsed(text: str, origin: str) -> object:
    """Parse a YAML text; sweeps load the same few clusters for every point, and parsing is most of loading."""
    return parsed_yaml(text, origin)


def read_parameters(tree: Mapping[object, object], origin: str, *, fabric: str = "") -> Mapping[str, Rule]:
    """Return the parameters that a file declares, and those of its fabric.

    Args:
        tree: Content of the file.
        origin: Name of the file in messages.
        fabric: Fabric that the user has chosen; that of the file where none is.
    """
    head = _validate(_Header, {key: tree[key] for key in ("parameters", "fabric") if tree.get(key) is not None}, origin)
    if head.fabric is None:
        return head.parameters
    kind = fabric or head.fabric.kind
    rules: dict[str, Rule] = {
        **head.parameters,
        "fabric": ChoiceRule(description="network between machines", default=head.fabric.kind, choices=FABRICS),
    }
    if kind in FABRICS:
        rules |= {name: ParameterRule(**rule._asdict()) for name, rule in fabric_parameters(kind).items()}
        if has_ways(kind):
            rules["routing"] = ChoiceRule(description=_ROUTING, default=ROUTINGS[0], choices=ROUTINGS)
    return rules


def parse_cluster(tree: Mapping[object, object], values: Mapping[str, float | str], origin: str) -> ClusterFile:
    """Check a whole file, with ``values`` in place of the names of parameters, and its fabric as levels.

    Raises:
        ConfigError: Rules are broken; one line names all of them with their paths in the file.
    """
    parts = ("link_classes", "levels", "fabric")
    filled = {key: _fill(part, values) if key in parts else part for key, part in tree.items()}
    return _validate(ClusterFile, _with_fabric(filled, values, origin), origin)


def _with_fabric(tree: dict[object, object], values: Mapping[str, float | str], origin: str) -> dict[object, object]:
    """Return the content of a file with levels in place of its fabric."""
    section, levels = tree.pop("fabric", None), tree.get("levels")
    if section is None or not isinstance(levels, list) or not levels or not isinstance(levels[-1], dict):
        return tree  # what is wrong with the levels is said when all are checked
    machine = str(levels[-1].get("name"))
    network = Network(_validate(FabricSection, section, f"{origin}: fabric"), machine, values)
    try:
        above = fabric_levels(str(values["fabric"]), network)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    return {**tree, "levels": [*levels, *above], "routing": values.get("routing", tree.get("routing", ROUTINGS[0]))}


def _fill(part: object, values: Mapping[str, float | str]) -> object:
    """Return a part of a file with the values of parameters in place of their names."""
    if isinstance(part, dict):
        return {
            key: values[value]
            if key in PARAMETRIC and isinstance(value, str) and value in values
            else _fill(value, values)
            for key, value in part.items()
        }
    return [_fill(item, values) for item in part] if isinstance(part, list) else part


def _validate(model: type[_Model], tree: object, origin: str) -> _Model:
    """Return the checked content of a file; ``origin`` names the file in messages."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(f"{origin}: {broken_rules(error)}") from None
