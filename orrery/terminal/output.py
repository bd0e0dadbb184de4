"""Output of the commands: files that are whole or absent, where ``--out`` says, and one JSON value."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from groundwork.control_characters import check_texts
from groundwork.errors import ConfigError
from groundwork.input_files import reserved_output
from groundwork.whole_files import replacing
from orrery.terminal.signals import hold_signals, release_signals

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


@dataclass(frozen=True, slots=True)
class Out:
    """Where ``--out`` leads."""

    typed: Path
    files: tuple[Path, ...]


def out_option(*names: str, also: tuple[str, ...] = (), folder_only: bool = False) -> Any:
    """Return the option ``--out`` of a command: a file where its ending is one that the command writes, else a folder.

    Beside a file, whatever else the command writes takes the same name with its own ending.

    Args:
        names: Usual names of the files, as they are in a folder.
        also: Other endings that the only file may have, such as ``.parquet``.
        folder_only: Files that link to each other, or share endings: they are written to a folder.
    """
    usual = [Path(name).suffix for name in names]
    endings = [] if folder_only else [*usual, *also]
    folder = f"folder for {', '.join(names)}"
    rule = f"{folder}, or a file that ends in {' or '.join(endings)}" if endings else folder

    def parsed(text: str) -> Out:
        """Return where a word leads, or raise ValueError."""
        path = Path(text)
        if not (text.endswith(os.sep) or os.path.isdir(text)):
            if path.suffix in endings:
                return Out(path, tuple(path if path.suffix in (own, *also) else path.with_suffix(own) for own in usual))
            if endings and (os.path.lexists(text) and not os.path.isfile(text)):
                return Out(path, (path,) * len(names))
            if not text or re.fullmatch(r"\.[A-Za-z]\w*", path.suffix):  # the .5 of run-1.5 ends a folder's name
                raise ValueError(f"must be a {rule}, got {text!r}")
        return Out(path, tuple(path / name for name in names))

    return typer.Option("--out", parser=parsed, metavar="PATH", help=f"{rule.capitalize()}.")


@contextmanager
def out_files(out: Out | None) -> Iterator[tuple[Path, ...]]:
    """Yield paths to write the files of ``--out`` to, which take their names at the end; none without the option.

    Raises:
        ConfigError: As for ``output_file``.
    """
    with ExitStack() as stack:
        yield tuple(stack.enter_context(output_file(path)) for path in (out.files if out else ()))


def write_results(files: tuple[Path, ...], html: Callable[[], str], *values: Any) -> None:
    """Write a page, and the numbers that it shows beside it; nothing where ``--out`` was left out."""
    if files:
        files[0].write_text(html(), encoding="utf-8")
        for file, value in zip(files[1:], values, strict=True):
            file.write_bytes(to_json(value))


def print_lines(lines: Iterable[str], out: Out | None) -> None:
    """Print lines below a table, and where the page is that ``--out`` asked for."""
    print("\n".join([*lines, *([f"page: {out.files[0]}"] if out else [])]))


def to_json(value: Any) -> bytes:
    """Encode dataclasses, dicts, lists and NumPy numbers; NaN and infinity become null."""
    import msgspec

    return msgspec.json.encode(msgspec.to_builtins(value, enc_hook=lambda number: number.tolist()))


def print_json(value: Any) -> None:
    """Print one JSON value on standard output, on one line."""
    sys.stdout.write(to_json(value).decode() + "\n")
