"""Reader of cluster files: from YAML, with parameters filled in, to the checked classes of ``cluster_file``."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from groundwork.errors import ConfigError
from groundwork.input_files import input_text
from groundwork.input_values import parsed_yaml
from groundwork.rule_texts import broken_rules
from hwprofiles.catalogue.cluster_file import ClusterFile, ParameterRule, VertexName

PARAMETRIC = frozenset(
    {"count", "at_most", "each", "bandwidth_gbyte_per_s", "bandwidth_gbit_per_s", "latency_us", "memory_gib"}
    | {"total", "host_to_device", "device_to_host", "peer"}
    | {"message_us", "byte_ns", "add_byte_ns"}
)
"""Keys whose value may be the name of a parameter."""


class _Header(BaseModel):
    """The section of a file that must be known before parameters can be filled in."""

    parameters: Mapping[VertexName, ParameterRule] = {}


_Model = TypeVar("_Model", bound=BaseModel)


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


def read_parameters(tree: Mapping[object, object], origin: str) -> Mapping[str, ParameterRule]:
    """Return the parameters that a file declares."""
    return _validate(_Header, {"parameters": tree.get("parameters", {})}, origin).parameters


def parse_cluster(tree: Mapping[object, object], values: Mapping[str, float], origin: str) -> ClusterFile:
    """Check a whole file, with ``values`` in place of the names of parameters.

    Raises:
        ConfigError: Rules are broken; one line names all of them with their paths in the file.
    """
    filled = {key: _fill(part, values) if key in ("link_classes", "levels") else part for key, part in tree.items()}
    return _validate(ClusterFile, filled, origin)


def _fill(part: object, values: Mapping[str, float]) -> object:
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
