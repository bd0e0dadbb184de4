"""Kinds of files, recognised by what they hold."""

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from groundwork.control_characters import check_texts
from groundwork.errors import ConfigError
from groundwork.input_files import input_text
from groundwork.input_values import parsed_yaml
from hwprofiles.readers.card_list import CARD_LINE, cards_of
from hwprofiles.readers.facts import Facts
from hwprofiles.readers.gpu_list import GPU_LINE, gpus_of_lines, gpus_of_log
from hwprofiles.readers.lstopo_xml import topology_of_lstopo
from hwprofiles.readers.nccl_tests import RESULT_HEADER, collectives_of
from hwprofiles.readers.nccl_xml import topology_of_nccl
from hwprofiles.readers.pair_rates import MATRIX_TITLE, pair_rates
from hwprofiles.readers.switch_tree import SWITCH_LINE, switch_tree
from hwprofiles.readers.topology_table import ANSI, topology_of_table

_XML: dict[str, tuple[str, Callable[[Element, str], Facts]]] = {
    "system": ("NCCL topology", topology_of_nccl),
    "topology": ("lstopo topology", topology_of_lstopo),
    "nvidia_smi_log": ("nvidia-smi log", gpus_of_log),
}
"""Readers by the outermost element."""
_TEXTS: tuple[tuple[re.Pattern[str], str, Callable[[str, str], Facts]], ...] = (
    (RESULT_HEADER, "nccl-tests output", collectives_of),
    (MATRIX_TITLE, "p2pBandwidthLatencyTest output", pair_rates),
    (CARD_LINE, "ibstat output", cards_of),
    (SWITCH_LINE, "topology.conf", switch_tree),
    (re.compile(r"^\s*GPU\d+\b", re.MULTILINE), "topology table", topology_of_table),
    (GPU_LINE, "list of GPUs", gpus_of_lines),
)
"""Readers by a line that only their kind has."""
_KNOWN = (
    "nvidia-smi topo -m, nvidia-smi -L or -q -x, NCCL's topology (NCCL_TOPO_DUMP_FILE), lstopo's XML, nccl-tests,"
    " p2pBandwidthLatencyTest, ibstat, Slurm's topology.conf, or a cluster file"
)
_LIMIT_MIB = 32


def is_cluster_file(path: Path) -> bool:
    """Return whether a file is a cluster file: YAML with levels."""
    text = input_text(path, "machine file", limit_mib=_LIMIT_MIB)
    if not re.search(r"^levels\s*:", text, re.MULTILINE):
        return False
    return isinstance(parsed_yaml(text, f"cluster file {path}"), dict)


def read_facts(path: Path) -> Facts:
    """Return what a file says about a machine or a network.

    Raises:
        ConfigError: The file cannot be read, is of no known kind, is cut off or contradicts itself.
    """
    text = input_text(path, "machine file", limit_mib=_LIMIT_MIB).lstrip("\ufeff")
    if text.lstrip().startswith("<"):
        root = xml_tree(text, f"machine file {path}")
        if root.tag not in _XML:
            raise ConfigError(f"machine file {path} is of no known kind: <{root.tag[:40]}>; known: {_KNOWN}")
        for element in root.iter():
            check_texts([*element.attrib.values(), element.text or ""], f"machine file {path}")
        kind, of_tree = _XML[root.tag]
        return of_tree(root, f"{kind} {path}")
    plain = ANSI.sub("", text)
    check_texts([plain], f"machine file {path}")
    for line, kind, of_text in _TEXTS:
        if line.search(plain):
            try:
                return of_text(plain, f"{kind} {path}")
            except ConfigError as error:
                if str(path) in str(error):
                    raise
                raise ConfigError(f"{path}: {error}") from None
    raise ConfigError(f"machine file {path} is of no known kind; known: {_KNOWN}")


_MOST_LEVELS, _MOST_ELEMENTS = 64, 200_000
"""A hundred times what the largest machine's topology has."""


def xml_tree(text: str, origin: str) -> Element:
    """Return the outermost element of an XML text.

    A document type may be named, as hwloc and nvidia-smi do, but nothing is fetched, and entities are refused: those of
    entities grow without limit.

    Raises:
        ConfigError: The text is not XML or is cut off, declares entities, or is larger than any topology.
    """
    parser, builder = expat.ParserCreate(), TreeBuilder()
    depth = count = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth, count
        depth, count = depth + 1, count + 1
        if depth > _MOST_LEVELS or count > _MOST_ELEMENTS:
            raise ConfigError(
                f"{origin} must have at most {_MOST_ELEMENTS:,} elements, nested at most {_MOST_LEVELS} levels deep"
            )
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def refuse(*_: object) -> None:
        raise ConfigError(f"{origin} must declare no entities")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = parser.ExternalEntityRefHandler = refuse  # type: ignore[assignment]
    parser.SkippedEntityHandler = refuse
    try:
        parser.Parse(text, True)
        return builder.close()
    except expat.ExpatError as error:
        raise ConfigError(f"{origin} is not XML or is cut off: {error}") from None
