"""What the commands leave behind: files that are whole or absent, and one JSON value."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hwprofiles import ConfigError

__all__ = ["page_files", "print_json", "to_json", "whole_file"]


_open: set[Path] = set()
"""What is being written: two outputs of one name would each take the other's place."""


@contextmanager
def whole_file(path: Path, *inputs: Path | str | None) -> Iterator[Path]:
    """Yield a path to write to, which takes the name ``path`` only when the block ends well.

    Opened before long work, so that a place that cannot be written is known at once.  Missing folders
    are made, and removed again after an error or Ctrl-C; what was at ``path`` stays until then.

    Args:
        path: Where to write.
        inputs: Files that the command reads, which the output must not replace; names of other things do no harm.

    Raises:
        ConfigError: ``path`` is a folder, one of the inputs or written already, or nothing can be written there.
    """
    target = path.resolve()
    if target.exists() and not (target.is_file() or target.is_dir()):
        yield target  # a device such as /dev/null is written to, never replaced
        return
    if target in _open:
        raise ConfigError(f"output paths must differ, got {str(path)!r} twice")
    if target.is_file() and target in {Path(each).resolve() for each in inputs if each}:
        raise ConfigError(f"output path must not be a file that is read, got {str(path)!r}")
    partial = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
    missing_folders = [folder for folder in target.parents if not folder.exists()]
    _open.add(target)
    try:
        _create(partial, target=target)
        yield partial
        partial.replace(target)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
            for folder in missing_folders:
                folder.rmdir()
        raise
    finally:
        _open.discard(target)


@contextmanager
def page_files(folder: Path | None, numbers: str) -> Iterator[tuple[Path, Path] | None]:
    """Yield where to write a folder's page, ``index.html``, and its numbers; None where no folder is asked for.

    Raises:
        ConfigError: As for ``whole_file``.
    """
    if folder is None:
        yield None
        return
    with whole_file(folder / "index.html") as page, whole_file(folder / numbers) as values:
        yield page, values


def _create(partial: Path, *, target: Path) -> None:
    if target.is_dir():
        raise ConfigError(f"output path must name a file, got the folder {str(target)!r}")
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.touch()
    except OSError as error:
        raise ConfigError(f"output path must be writable, got {str(target)!r}: {error.strerror}") from error


def to_json(value: Any) -> bytes:
    """Encode dataclasses, dicts, lists and NumPy numbers; NaN and infinity become null."""
    import msgspec

    return msgspec.json.encode(value, enc_hook=lambda number: number.tolist())


def print_json(value: Any) -> None:
    """Print one JSON value on standard output, on one line."""
    sys.stdout.write(to_json(value).decode() + "\n")
