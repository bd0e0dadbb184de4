"""Files of pages, written whole or not at all."""

from groundwork.input_files import AnyPath
from groundwork.whole_files import replacing


def write_page(html: str, path: AnyPath) -> None:
    """Write a page to a file beside ``path`` and rename it, so that a reader sees the old file or the whole new one.

    Raises:
        OSError: The folder does not exist or cannot be written; ``path`` is then untouched.
    """
    with replacing(path) as file:
        file.write_text(html, encoding="utf-8")
