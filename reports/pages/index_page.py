"""Index of a folder of results: the pages and JSON files in it, with their headlines."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

from groundwork.control_characters import printable
from groundwork.errors import ConfigError
from groundwork.input_files import json_input
from reports.pages.page_template import rendered
from reports.style.units import byte_unit, time_unit

_HEAD_BYTES = 4096
"""Number of bytes at the begin of a page that hold its description."""
_MOST_BYTES = 50_000_000
"""Size above which JSON files are listed without being read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """Entry of the index: a page or a result."""

    file: str
    """Path relative to the folder, with escapes for what is no text."""
    address: str
    """The same as a relative address."""
    kind: str
    headline: str
    size_bytes: int
    changed: str
    """Time of the last change, to the minute, in local time."""


def found_results(folder: Path, *, leave_out: Path | None = None) -> list[IndexEntry]:
    """Return the pages of Orrery, and JSON files of any kind, in a folder and its subfolders, the latest first.

    Raises:
        ConfigError: The folder does not exist, or has no such file.
    """
    if not folder.is_dir():
        raise ConfigError(f"index needs a folder, got {str(folder)!r}")
    entries = []
    paths = [path for path in folder.rglob("*") if path.suffix in (".html", ".json") and not path.name.startswith(".")]
    for path in sorted(paths):
        if not path.is_file() or (leave_out is not None and os.path.realpath(path) == os.path.realpath(leave_out)):
            continue
        description = _page(path) if path.suffix == ".html" else _values(path)
        if description is None:
            continue
        stat = path.stat()
        name = path.relative_to(folder).as_posix()
        entries.append(
            IndexEntry(
                file=printable(name),
                address=quote(os.fsencode(name)),
                kind=description[0],
                headline=printable(description[1]),
                size_bytes=stat.st_size,
                changed=datetime.fromtimestamp(stat.st_mtime).strftime("%Y-%m-%d %H:%M"),
            )
        )
    if not entries:
        raise ConfigError(f"index needs pages or JSON files, {str(folder)!r} has none")
    return sorted(entries, key=lambda each: each.changed, reverse=True)


def check_no_other_page(page: Path, folder: Path) -> None:
    """Refuse to write an index over a file of the folder that is none.

    Raises:
        ConfigError: The file is in the folder, exists and is no index of Orrery.
    """
    inside = Path(os.path.realpath(page)).is_relative_to(os.path.realpath(folder))  # also of loops of links
    if inside and page.is_file() and _meta(page).get("orrery-page") != "index":
        other = page.with_name("index.html" if page.name == "results.html" else "results.html")
        raise ConfigError(f"out must be no file that the index lists, got {page}; name another, such as --out {other}")


class _Head(HTMLParser):
    """Parser that collects the description of a page from its meta elements."""

    def __init__(self) -> None:
        super().__init__()
        self.meta: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the name and content of a meta element."""
        values = dict(attrs)
        if tag == "meta" and values.get("name"):
            self.meta[str(values["name"])] = values.get("content") or ""


def _page(path: Path) -> tuple[str, str] | None:
    """Return kind and headline of a page of Orrery; None for other pages, and for an index."""
    meta = _meta(path)
    if meta.get("generator") != "Orrery" or meta.get("orrery-page") == "index":
        return None
    return printable(meta.get("orrery-page", "page")), meta.get("description", "")


def _meta(path: Path) -> dict[str, str]:
    """Return the description of a page; nothing where it cannot be read."""
    head = _Head()
    try:
        with path.open("rb") as file:
            head.feed(file.read(_HEAD_BYTES).decode("utf-8", errors="replace"))
    except (OSError, AssertionError, ValueError):  # the parser asserts that markup is well formed
        return {}
    return head.meta


def _values(path: Path) -> tuple[str, str]:
    """Return kind and headline of a JSON file: its model, strategy and cluster, and its main time."""
    if path.stat().st_size > _MOST_BYTES:
        return "JSON", "too large to be read for the index"
    try:
        values = json_input(path, "JSON file")
    except ConfigError:
        return "JSON", "cannot be read"
    if not isinstance(values, Mapping):
        return "JSON", f"{len(values):,} rows" if isinstance(values, list) else str(values)[:80]
    known = {key: values.get(key) for key in ("model", "strategy", "cluster", "batch")}
    words = [f"{key} {value}" for key, value in known.items() if isinstance(value, str | int | float) and value != ""]
    for key in ("expected_s", "iteration_s", "simulated_s", "additive_s", "measured_s", "makespan_s"):
        if isinstance(values.get(key), int | float):
            seconds = float(values[key])
            words.append(f"{key.removesuffix('_s')} {time_unit([seconds]).full(seconds)}")
    winner = values.get("winner")
    words += [f"winner {winner}"] if isinstance(winner, str) and winner else []
    return _kind(values), ", ".join(words) or f"keys {', '.join(list(values)[:6])}"


def _kind(values: Mapping[str, Any]) -> str:
    """Return the kind of a result by the keys that only this kind has."""
    known = {
        "plan": ("configurations", "model_digest"),
        "comparison": ("strategies", "winner"),
        "run": ("loss_last", "steps"),
        "oracle": ("winners", "limits"),
        "task graph": ("tasks", "resources"),
    }
    return next((kind for kind, keys in known.items() if all(key in values for key in keys)), "JSON")


def index_html(folder: Path, entries: list[IndexEntry], *, page: Path) -> str:
    """Return the index as HTML."""
    pages = sum(each.file.endswith(".html") for each in entries)
    beside = quote(os.fsencode(Path(os.path.relpath(folder.resolve(), page.parent.resolve())).as_posix()))
    name = printable(folder.resolve().name)
    unit = byte_unit([each.size_bytes for each in entries])
    files = len(entries) - pages
    counts = f"{pages:,} page{'s' * (pages != 1)} and {files:,} JSON file{'s' * (files != 1)}"
    return rendered(
        "index.html",
        headline=f"{counts} in {name}.",
        draws=False,
        folder=name,
        rows=[(each, f"{beside}/{each.address}", unit.text(each.size_bytes)) for each in entries],
        unit=unit.name,
    )
