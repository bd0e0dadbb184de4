"""An index of a folder of results: the pages and JSON files in it, and what each says."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hwprofiles import ConfigError
from reports.pages.page_template import rendered
from reports.style import byte_unit, time_unit

__all__ = ["IndexEntry", "found_results", "index_html"]

_HEAD_BYTES = 4096
"""What a page says of itself stands in its first bytes."""
_MOST_BYTES = 50_000_000
"""Larger JSON files are listed unread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """A page or a result."""

    file: str
    """Relative to the folder."""
    kind: str
    headline: str
    size_bytes: int
    changed: str
    """When, to the minute, in local time."""


def found_results(folder: Path, *, leave_out: Path | None = None) -> list[IndexEntry]:
    """Find Orrery's pages, and JSON files of any kind, in a folder and those in it; the latest first.

    Args:
        folder: Where to look.
        leave_out: A file that is not listed: the index itself.

    Raises:
        ConfigError: There is no such folder, or nothing in it.
    """
    if not folder.is_dir():
        raise ConfigError(f"index needs a folder, got {str(folder)!r}")
    found = []
    paths = [path for path in folder.rglob("*") if path.suffix in (".html", ".json") and not path.name.startswith(".")]
    for path in sorted(paths):
        if not path.is_file() or (leave_out is not None and path.resolve() == leave_out.resolve()):
            continue
        said = _page(path) if path.suffix == ".html" else _values(path)
        if said is None:
            continue
        stat = path.stat()
        found.append(
            IndexEntry(
                file=path.relative_to(folder).as_posix(), kind=said[0], headline=said[1], size_bytes=stat.st_size,
                changed=datetime.fromtimestamp(stat.st_mtime).strftime("%Y-%m-%d %H:%M"),
            )
        )  # fmt: skip
    if not found:
        raise ConfigError(f"index needs pages or JSON files, {str(folder)!r} has none")
    return sorted(found, key=lambda each: each.changed, reverse=True)


class _Head(HTMLParser):
    """Collects a page's own words about itself."""

    def __init__(self) -> None:
        super().__init__()
        self.meta: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the name and content of a meta element."""
        values = dict(attrs)
        if tag == "meta" and values.get("name"):
            self.meta[str(values["name"])] = values.get("content") or ""


def _page(path: Path) -> tuple[str, str] | None:
    """Kind and headline of a page of Orrery's; None for other pages, and for an index."""
    head = _Head()
    with path.open("rb") as file:
        head.feed(file.read(_HEAD_BYTES).decode("utf-8", errors="replace"))
    if head.meta.get("generator") != "Orrery" or head.meta.get("orrery-page") == "index":
        return None
    return head.meta.get("orrery-page", "page"), head.meta.get("description", "")


def _values(path: Path) -> tuple[str, str]:
    """Kind and headline of a JSON file: what it is of, and its main time."""
    if path.stat().st_size > _MOST_BYTES:
        return "JSON", "too large to be read for the index"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "JSON", "cannot be read"
    if not isinstance(values, Mapping):
        return "JSON", f"{len(values):,} rows" if isinstance(values, list) else str(values)[:80]
    words = [f"{key} {values[key]}" for key in ("model", "strategy", "cluster", "batch") if _said(values.get(key))]
    for key in ("iteration_s", "simulated_s", "additive_s", "measured_s", "makespan_s"):
        if isinstance(values.get(key), int | float):
            seconds = float(values[key])
            words.append(f"{key.removesuffix('_s')} {time_unit([seconds]).full(seconds)}")
    winner = values.get("winner")
    words += [f"winner {winner}"] if isinstance(winner, str) and winner else []
    return _kind(values), ", ".join(words) or f"keys {', '.join(list(values)[:6])}"


def _said(value: object) -> bool:
    return isinstance(value, str | int | float) and value != ""


def _kind(values: Mapping[str, Any]) -> str:
    """What wrote it, by the keys that only that has."""
    known = {
        "plan": ("configurations", "model_digest"),
        "comparison": ("strategies", "winner"),
        "run": ("loss_last", "steps"),
        "oracle": ("winners", "limits"),
        "task graph": ("tasks", "resources"),
    }
    return next((kind for kind, keys in known.items() if all(key in values for key in keys)), "JSON")


def index_html(folder: Path, found: list[IndexEntry], *, page: Path) -> str:
    """Render the index; its links are relative to the page."""
    pages = sum(each.file.endswith(".html") for each in found)
    beside = Path(_relative(folder, page.parent))
    unit = byte_unit([each.size_bytes for each in found])
    return rendered(
        "index.html",
        headline=f"{pages:,} page{'s' * (pages != 1)} and {len(found) - pages:,} JSON files in {folder.resolve().name}",
        draws=False,
        folder=folder.resolve().name,
        rows=[(each, quote((beside / each.file).as_posix()), unit.text(each.size_bytes)) for each in found],
        unit=unit.name,
    )


def _relative(target: Path, start: Path) -> str:
    return os.path.relpath(target.resolve(), start.resolve())
