"""The working folder: uploaded models and clusters, kept scenarios and exported pages, each as one whole file."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from groundwork.errors import ConfigError
from groundwork.whole_files import replacing

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
"""Names of files, without suffix: no path, no dot, no device of another system."""
UPLOAD_KINDS = ("models", "clusters")
_FOLDERS = (*UPLOAD_KINDS, "scenarios", "pages")
_MOST_FILES = 500
"""Files of one kind, so that a page that goes wild does not fill the disk."""


def json_bytes(value: Any) -> bytes:
    """Encode dataclasses, dicts, lists and NumPy numbers; NaN and infinity become null."""
    return msgspec.json.encode(value, enc_hook=lambda number: number.tolist())


def readable_name(words: str, content: bytes) -> str:
    """Return a name for a file: the begin of some words, and a digest that tells different contents apart."""
    begin = re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-")[:50].strip("-") or "unnamed"
    return f"{begin}-{hashlib.sha256(content).hexdigest()[:10]}"


def path_inside(folder: Path, kind: str, name: str, suffix: str) -> Path:
    """Return the path of a file of a working folder, which need not exist.

    Raises:
        ConfigError: The name has other characters than letters, digits, _ and -, or a link leads elsewhere.
    """
    if kind not in _FOLDERS or not FILE_NAME.fullmatch(name):
        raise ConfigError(f"name must be of letters, digits, _ and -, 63 at most, got {name!r}")
    path = folder / kind / f"{name}{suffix}"
    with suppress(OSError, RuntimeError):  # a loop of links
        if path.resolve() == path and (path.is_file() or not path.exists()):
            return path
    raise ConfigError(f"{kind} {name!r} must be a regular file of the working folder, and no link")


class WorkingFolder:
    """Files of the workbench by kind and name; no name and no link leads out of it.

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
        """Return the names of the regular files of a kind, without their suffix, sorted; links are passed over.

        Raises:
            ConfigError: The folder of that kind has become a link.
        """
        if (self.path / kind).is_symlink():
            raise ConfigError(f"{kind} must be a folder of the working folder, and no link")
        found = (entry for entry in os.scandir(self.path / kind) if entry.name.endswith(suffix))
        names = [entry.name.removesuffix(suffix) for entry in found if entry.is_file(follow_symlinks=False)]
        return sorted(name for name in names if FILE_NAME.fullmatch(name))

    def file(self, kind: str, name: str, suffix: str) -> Path:
        """Return the path of a file, which need not exist; errors as for ``path_inside``."""
        return path_inside(self.path, kind, name, suffix)

    def add(self, kind: str, name: str, suffix: str, content: bytes, check: Callable[[Path], Any]) -> Any:
        """Write a file under a new name, once it is checked; return what the check does.

        A file that has this content already is checked again, and stays.

        Raises:
            ConfigError: As for ``file``; or the name has another content, there are too many files, or no space.
        """
        path = self.file(kind, name, suffix)
        if path.exists():
            _check_same(path, content)
            return check(path)
        with self._writing(path) as beside:
            beside.write_bytes(content)
            found = check(beside)
            with suppress(OSError):  # the name is taken by now, or there are no hard links here
                os.link(beside, path)
            if path.exists():
                _check_same(path, content)
        return found

    def write(self, kind: str, name: str, suffix: str, content: bytes) -> None:
        """Write a whole file in place of the one of that name, if any.

        Raises:
            ConfigError: As for ``file``; or there are too many files, or no space.
        """
        with self._writing(self.file(kind, name, suffix)) as beside:
            beside.write_bytes(content)

    @contextmanager
    def _writing(self, path: Path) -> Iterator[Path]:
        kind = path.parent.name
        if not path.exists() and len(self.names(kind, path.suffix)) >= _MOST_FILES:
            raise ConfigError(f"{kind} must be at most {_MOST_FILES}, delete some first")
        try:
            with replacing(path) as beside:
                yield beside
        except OSError as error:
            raise ConfigError(f"{kind} {path.stem!r} cannot be written: {error.strerror}") from None

    def remove(self, kind: str, name: str, suffix: str) -> None:
        """Remove a file.

        Raises:
            ConfigError: As for ``file``; or there is none.
        """
        try:
            self.file(kind, name, suffix).unlink()
        except OSError as error:
            raise ConfigError(f"{kind} {name!r} cannot be removed: {error.strerror}") from None


def _check_same(path: Path, content: bytes) -> None:
    """Refuse another content for a file."""
    if path.read_bytes() != content:
        raise ConfigError(f"{path.stem!r} names another file already; choose another name, or remove that one first")
