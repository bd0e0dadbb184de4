"""Output of the commands: files that are whole or absent, and one JSON value."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from hwprofiles import ConfigError, check_texts, replacing, reserved_output
from orrery.terminal.old_names import with_old_fields
from orrery.terminal.signals import hold_signals, release_signals

__all__ = ["output_file", "page_files", "print_json", "to_json"]


_open: list[Path] = []
"""Outputs that are being written."""


@contextmanager
def output_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to, which takes the name ``path`` only when the block ends well.

    Opened before long work, so that a path that cannot be written is known at once.  Missing folders
    are made, and removed again after an error or Ctrl-C; what was at ``path`` stays until then.

    Args:
        path: Output file; a device such as ``/dev/null`` is written to, never replaced.

    Raises:
        ConfigError: ``path`` is a folder, read by the command or written already, or nothing can be written there.
    """
    check_texts([str(path)], "output path")
    target = _resolved(path)
    if target.is_dir():
        raise ConfigError(f"output path must name a file, got the folder {str(target)!r}")
    _open.append(target)
    try:
        with reserved_output(target), _folders_of(target), ExitStack() as stack:
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                beside = stack.enter_context(replacing(target))
            except OSError as error:
                raise ConfigError(f"output path must be writable, got {str(target)!r}: {error.strerror}") from error
            yield beside
            hold_signals()  # all outputs of a command are replaced, or none
    finally:
        _open.remove(target)
        if not _open:
            release_signals()


def _resolved(path: Path) -> Path:
    """Return where a path leads to."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, or a zero byte
        reason = getattr(error, "strerror", None) or "it leads nowhere"
        raise ConfigError(f"output path must be writable, got {str(path)!r}: {reason}") from None


@contextmanager
def _folders_of(target: Path) -> Iterator[None]:
    """Remove the folders that the block makes for a file, if the block fails."""
    missing = [folder for folder in target.parents if not folder.exists()]
    try:
        yield
    except BaseException:  # also an interruption
        with suppress(OSError):
            for folder in missing:
                folder.rmdir()
        raise


@contextmanager
def page_files(folder: Path | None, numbers: str) -> Iterator[tuple[Path, Path] | None]:
    """Yield the paths for a folder's page, ``index.html``, and for its numbers; None without a folder.

    Args:
        folder: Folder for both, made where it is missing.
        numbers: Name of the JSON file.

    Raises:
        ConfigError: As for ``output_file``.
    """
    if folder is None:
        yield None
        return
    with output_file(folder / "index.html") as page, output_file(folder / numbers) as values:
        yield page, values


def to_json(value: Any) -> bytes:
    """Encode dataclasses, dicts, lists and NumPy numbers; NaN and infinity become null.

    Renamed fields stand there by their old names, too (``orrery.terminal.old_names``).
    """
    import msgspec

    plain = msgspec.to_builtins(value, enc_hook=lambda number: number.tolist())
    return msgspec.json.encode(with_old_fields(plain))


def print_json(value: Any) -> None:
    """Print one JSON value on standard output, on one line."""
    sys.stdout.write(to_json(value).decode() + "\n")
