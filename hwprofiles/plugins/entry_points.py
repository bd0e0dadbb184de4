"""Plug-ins: models, clusters, devices and strategies that installed packages offer by entry points.

Entry points are read when names are listed, or when a name is looked up that is not built in: never at start-up.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from groundwork.control_characters import printable
from groundwork.errors import ConfigError, OrreryError

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint


PluginKind = Literal["models", "clusters", "devices", "strategies"]
_T = TypeVar("_T")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""Names that mean neither a file, nor parameters, nor a list, where they are typed."""


_UNNAMED = "a package without metadata"


class PluginError(ConfigError):
    """A plug-in that does not load or work; the message names it and its package."""


@dataclass(frozen=True, slots=True)
class _Offers:
    """What packages offer in one group."""

    points: dict[str, list[tuple[str, "EntryPoint"]]]
    """Packages, with their versions, and their entry points, by name."""
    problems: list[str]
    """Packages whose entry points cannot be read, and names that cannot be used, a line each."""


@cache
def _offers(kind: PluginKind) -> _Offers:
    """Read the entry points of one kind of all packages that are installed."""
    from importlib.metadata import distributions

    offers = _Offers({}, [])
    seen = set[str]()
    for distribution in distributions():
        if not _mentions_a_group(distribution):
            continue
        package = _package_of(distribution)
        if package != _UNNAMED:
            name = package.partition(" ")[0]
            if name in seen:
                continue
            seen.add(name)  # the first on the path is the one that is imported
        try:
            points = list(distribution.entry_points.select(group=f"orrery.{kind}"))
        except Exception as error:  # the parser of the standard library fails in its own ways
            offers.problems.append(f"plug-ins of {package}: entry_points.txt cannot be read: {_words(error)}")
            continue
        for point in points:
            if _NAME.fullmatch(point.name):
                offers.points.setdefault(point.name, []).append((package, point))
            else:
                rule = "name must be of letters, digits, - and _"
                offers.problems.append(f"plug-in {point.name} (orrery.{kind}) of {package}: {rule}")
    return offers


def _package_of(distribution: "Distribution") -> str:
    """Return a package with its version; ``_UNNAMED`` where a broken installation has left no metadata of it."""
    try:
        name, version = distribution.metadata["Name"], distribution.metadata["Version"]
    except Exception:  # importlib_metadata, which takes the standard library's place once imported, raises here
        return _UNNAMED
    return f"{name} {version}" if name else _UNNAMED


def _mentions_a_group(distribution: "Distribution") -> bool:
    """Return whether the entry points of a package have a group of ours; whether others can be read is not asked."""
    try:
        return "[orrery." in (distribution.read_text("entry_points.txt") or "")
    except (OSError, ValueError):
        return False


def plugin_names(kind: PluginKind) -> list[str]:
    """Return the names of all plug-ins of a kind, sorted, without loading any."""
    return sorted(_offers(kind).points)


def load_plugin(kind: PluginKind, name: str) -> Any:
    """Load a plug-in.

    Raises:
        PluginError: It does not load, or two packages offer the name.
    """
    points = _offers(kind).points[name]
    with naming_plugin(kind, name):
        if len(points) > 1:
            raise ConfigError("the name is offered twice; uninstall one of the packages")
        return points[0][1].load()


def plugin_path(kind: PluginKind, name: str) -> Path:
    """Return the file that a plug-in names; arguments and errors as for ``load_plugin``."""
    found = load_plugin(kind, name)
    with naming_plugin(kind, name):
        if not isinstance(found, str | os.PathLike) or not Path(found).is_file():
            raise ConfigError(f"the entry point must name the path of a file, got {found!r}")
    return Path(found)


@contextmanager
def naming_plugin(kind: PluginKind, name: str) -> Iterator[None]:
    """Make an error of any kind that the block raises, which runs a plug-in, one line that names it and its package.

    Raises:
        PluginError: The block has raised an exception.
    """
    try:
        yield
    except PluginError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{_title(kind, name)}: {_words(error)}") from error


def working(kind: PluginKind, names: Iterable[str], describe: Callable[[str], _T]) -> list[_T]:
    """Describe what is listed; plug-ins that do not work are left out, with a line each on standard error.

    Raises:
        OrreryError: What is built in cannot be described.
    """
    rows, problems = [], list(_offers(kind).problems)
    for name in names:
        try:
            rows.append(describe(name))
        except OrreryError as error:
            if name not in _offers(kind).points:
                raise
            problems.append(str(error) if isinstance(error, PluginError) else f"{_title(kind, name)}: {error}")
    for problem in problems:
        print("orrery:", printable(" ".join(problem.split())), file=sys.stderr)
    return rows


def _title(kind: PluginKind, name: str) -> str:
    """Return a plug-in with its group and packages, for messages."""
    return f"plug-in {name} (orrery.{kind}) of {' and '.join(package for package, _ in _offers(kind).points[name])}"


def _words(error: BaseException) -> str:
    """Return an error on one line, with its type where it is none of ours."""
    text = " ".join(str(error).split())
    return text if isinstance(error, OrreryError) else f"{type(error).__name__}: {text}"
