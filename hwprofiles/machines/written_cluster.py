"""Cluster files as programs write them: short lists and mappings on one line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_SHORT = 100
"""Longest list on one line, as Python writes it; mappings, whose keys have no quotes in YAML, are shorter there."""


class _Dumper(yaml.SafeDumper):
    """Writer of YAML with short lists and mappings on one line, others over several."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        return super().represent_sequence(tag, sequence, flow_style=_is_short(sequence))

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        return super().represent_mapping(tag, mapping, flow_style=_is_short(mapping))

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _is_short(value: Any) -> bool:
    """Return whether a list or a mapping of plain values, or of short lists of them, fits on one line."""
    inner = value.values() if isinstance(value, Mapping) else value
    values = [part for each in inner for part in (each if isinstance(each, list) else [each])]
    plain = not any(isinstance(each, dict | list) for each in values)
    return plain and len(str(value)) <= _SHORT + 40 * isinstance(value, Mapping)


def write_cluster_file(path: Path, content: Mapping[str, Any], comment: str) -> None:
    """Write the content of a cluster file."""
    text = yaml.dump(dict(content), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    path.write_text(f"# {comment}\n{text}", encoding="utf-8")
