"""The working folder: uploaded models and clusters, kept scenarios and exported pages, each as one whole file."""

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from hwprofiles import ConfigError, replacing

__all__ = ["FILE_NAME", "UPLOAD_KINDS", "WorkingFolder", "json_bytes"]

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
"""Names of files, without suffix: no path, no dot, no device of another system."""
UPLOAD_KINDS = ("models", "clusters")
_FOLDERS = (*UPLOAD_KINDS, "scenarios", "pages")
_MOST_FILES = 500
"""Files of one kind, so that a page that goes wild does not fill the disk."""


def json_bytes(value: Any) -> bytes:
    """Encode dataclasses, dicts, lists and NumPy numbers; NaN and infinity become null."""
    return msgspec.json.encode(value, enc_hook=lambda number: number.tolist())


class WorkingFolder:
    """Files of the workbench by kind and name; no name leads out of it.

    Args:
        path: The folder; it and its parts are made where they are missing.

    Raises:
        ConfigError: It cannot be made or written, or a part of it is a link.
    """

    def __init__(self, path: Path) -> None:
        try:
            self.path = path.resolve()
            for name in _FOLDERS:
                part = self.path / name
                part.mkdir(parents=True, exist_ok=True)
                if part.is_symlink() or not os.access(part, os.W_OK | os.X_OK):
                    raise ConfigError(f"working folder must hold writable folders of its own, got {str(part)!r}")
        except (OSError, RuntimeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"working folder must be writable, got {str(path)!r}: {reason}") from None

    def names(self, kind: str, suffix: str) -> list[str]:
        """Return the names of the regular files of a kind, without their suffix, sorted; links are passed over."""
        found = (entry for entry in os.scandir(self.path / kind) if entry.name.endswith(suffix))
        names = [entry.name.removesuffix(suffix) for entry in found if entry.is_file(follow_symlinks=False)]
        return sorted(name for name in names if FILE_NAME.fullmatch(name))

    def file(self, kind: str, name: str, suffix: str) -> Path:
        """Return the path of a file, which need not exist.

        Raises:
            ConfigError: The name has other characters than letters, digits, _ and -, or is that of a link.
        """
        if kind not in _FOLDERS or not FILE_NAME.fullmatch(name):
            raise ConfigError(f"name must be of letters, digits, _ and -, 63 at most, got {name!r}")
        path = self.path / kind / f"{name}{suffix}"
        with suppress(OSError):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise ConfigError(f"{kind} {name!r} must be a regular file")
        return path

    def write(self, kind: str, name: str, suffix: str, content: bytes) -> Path:
        """Write a whole file in place of the one of that name, if any.

        Raises:
            ConfigError: As for ``file``; or there are too many files, or no space.
        """
        path = self.file(kind, name, suffix)
        if not path.exists() and len(self.names(kind, suffix)) >= _MOST_FILES:
            raise ConfigError(f"{kind} must be at most {_MOST_FILES}, delete some first")
        try:
            with replacing(path) as beside:
                beside.write_bytes(content)
        except OSError as error:
            raise ConfigError(f"{kind} {name!r} cannot be written: {error.strerror}") from None
        return path

    def remove(self, kind: str, name: str, suffix: str) -> None:
        """Remove a file.

        Raises:
            ConfigError: As for ``file``; or there is none.
        """
        try:
            self.file(kind, name, suffix).unlink()
        except OSError as error:
            raise ConfigError(f"{kind} {name!r} cannot be removed: {error.strerror}") from None
