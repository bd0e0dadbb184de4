"""The one place that reads files which users name: regular files of a limited size, as bytes, text, YAML or JSON.

It also sees to it that no command replaces a file that it reads.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from groundwork.errors import ConfigError

AnyPath = str | os.PathLike[str]
"""A path as Python's own functions take it."""

INPUT_LIMIT = "ORRERY_MAX_INPUT_MIB"
"""Variable of the environment, which other processes of a command inherit, that replaces every limit of a size."""
JSON_MIB, YAML_MIB = 256, 8
"""Limits: four times a plan for 8,192 devices; a hundred times the largest cluster file, read in seconds."""
_MIB = 2**20
_KINDS = {
    stat.S_IFDIR: "folder",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}
_last = [""]
_noted: list[set[Path]] = []
"""Files that each command under way has read; empty where a program uses the packages without a command."""
_outputs: set[Path] = set()
"""Files that are going to be replaced."""


def text_of(given: object, what: str) -> str:
    """Return the text of a name or a path.

    Raises:
        ConfigError: It is neither.
    """
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(text, str):
        raise ConfigError(f"{what} must be text or a path, got {given!r}")
    return text


def path_of(given: object, what: str) -> Path:
    """Return a path that is given as text or as a path; arguments and errors as for ``text_of``."""
    return Path(text_of(given, what))


@contextmanager
def noted_inputs() -> Iterator[None]:
    """Note what the block, a command, reads: ``reserved_output`` refuses to have any of it replaced."""
    _noted.append(set())
    try:
        yield
    finally:
        _noted.pop()


@contextmanager
def reserved_output(path: Path) -> Iterator[None]:
    """Let nobody read a file which the block is going to replace: hours of work would be lost with a plan.

    Raises:
        ConfigError: The command has read it before, or reads it in the block; or it is reserved already.
    """
    if path in _outputs:
        raise ConfigError(f"output paths must differ, got {str(path)!r} twice")
    if any(path in read for read in _noted):
        raise _is_read(path)
    _outputs.add(path)
    try:
        yield
    finally:
        _outputs.discard(path)


def _is_read(path: Path) -> ConfigError:
    return ConfigError(f"output path must not be a file that is read, got {str(path)!r}")


def last_input() -> str:
    """Return the kind and path of the file that was read last; empty if none was."""
    return _last[0]


def check_input(path: AnyPath, what: str, *, limit_mib: float) -> int:
    """Return the size of a file in bytes, after checking that it is a regular file within the limit.

    Raises:
        ConfigError: The file cannot be opened, is no regular file, or is too large.
    """
    handle = _opened(path, what, limit_mib)
    try:
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


def input_bytes(path: AnyPath, what: str, *, limit_mib: float = JSON_MIB) -> bytes:
    """Return what a file holds; arguments and errors as for ``check_input``."""
    with os.fdopen(_opened(path, what, limit_mib), "rb") as file:
        try:
            return file.read()
        except OSError as error:
            raise ConfigError(f"{what} {path} cannot be read: {error.strerror}") from None


def input_text(path: AnyPath, what: str, *, limit_mib: float = YAML_MIB) -> str:
    """Return the text of a file in UTF-8; arguments and errors as for ``check_input``."""
    try:
        return input_bytes(path, what, limit_mib=limit_mib).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what} {path} must be text in UTF-8: {error}") from None


def yaml_input(path: AnyPath, what: str) -> Any:
    """Return the value that a YAML file holds.

    Raises:
        ConfigError: As for ``check_input``; or the file is not YAML, or breaks a limit of ``parsed_yaml``.
    """
    from groundwork.input_values import parsed_yaml  # not loaded by --help

    return parsed_yaml(input_text(path, what), f"{what} {path}")


def json_input(path: AnyPath, what: str) -> Any:
    """Return the value that a JSON file holds.

    Raises:
        ConfigError: As for ``check_input``; or the file is not complete JSON, or breaks a limit of ``check_values``.
    """
    import msgspec  # not loaded by --help

    from groundwork.input_values import check_values

    content = input_bytes(path, what)
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what} {path} is not complete JSON: {error}") from None
    except RecursionError:
        raise ConfigError(f"{what} {path} is nested too deeply to be read") from None
    check_values(value, f"{what} {path}")
    return value


def _opened(given: AnyPath, what: str, limit_mib: float) -> int:
    """Open a file and check its kind and size before anything is read; opening a pipe waits for nobody."""
    path = path_of(given, what)
    _last[0] = f"{what} {path}"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise ConfigError(f"{what} {path} cannot be read: {error.strerror}") from None
    except ValueError:  # the system takes no path with a zero byte
        raise ConfigError(f"{what} {str(path)!r} is no name of a file") from None
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            kind = _KINDS.get(stat.S_IFMT(about.st_mode), "special file")
            raise ConfigError(f"{what} {path} must be a regular file, got a {kind}")
        most_mib = _limit_mib(limit_mib)
        if about.st_size > most_mib * _MIB:
            raise ConfigError(
                f"{what} {path} must have at most {most_mib:g} MiB, got {about.st_size / _MIB:.4g};"
                f" orrery --max-input-mib {about.st_size // _MIB + 1} ... reads it"
            )
        if (place := path.resolve()) in _outputs:
            raise _is_read(place)
        for read in _noted:
            read.add(place)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _limit_mib(default: float) -> float:
    """Return the limit that the user has set, or the default."""
    given = os.environ.get(INPUT_LIMIT, "")
    return float(given) if given.isascii() and given.isdigit() else default
