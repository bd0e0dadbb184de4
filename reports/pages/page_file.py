"""Files of pages, written whole or not at all."""

import os
import tempfile
from pathlib import Path

__all__ = ["write_page"]


def write_page(html: str, path: Path) -> None:
    """Write a page to a temporary file and rename it, so that a reader sees the old file or the whole new one.

    Raises:
        OSError: The folder does not exist or cannot be written; ``path`` is then untouched.
    """
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(html)
        os.chmod(beside, 0o644)
        os.replace(beside, path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
