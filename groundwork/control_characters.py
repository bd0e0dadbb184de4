"""Characters that steer a terminal: no text of a file may hold them, and none is printed."""

import re
from collections.abc import Iterable

from groundwork.errors import ConfigError

STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that move a terminal's cursor, change its colours or the direction of text, or are no characters."""


def printable(text: str) -> str:
    r"""Return a text with escapes, such as ``\x1b``, in place of characters that steer a terminal."""
    return STEERING.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def check_texts(texts: Iterable[str], origin: str) -> None:
    """Refuse texts of a file with characters that steer a terminal.

    Raises:
        ConfigError: A text has such characters.
    """
    found = STEERING.search("\n".join(texts))
    if found:
        raise ConfigError(f"{origin}: texts must hold no control characters, got {found[0]!r}")
