"""XML from users: elements and attributes only, no entities, of limited depth and number."""

from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from groundwork.errors import ConfigError

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
