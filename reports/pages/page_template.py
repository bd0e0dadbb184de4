"""Pages from templates; every template extends ``templates/base.html``."""

import base64
import json
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
import plotly.graph_objects as go

from groundwork.input_files import AnyPath
from groundwork.whole_files import replacing
from reports.style.palette import PALETTE

Links = tuple[tuple[str, str], ...]
"""Linked pages: name and address; an empty address stands for the page itself."""


def rendered(name: str, *, headline: str, draws: bool = True, links: Links = (), **values: Any) -> str:
    """Fill in a template of ``reports/templates``.

    Args:
        name: File of the template; without its suffix it is the kind of page, which an index shows.
        headline: Finding in one sentence, the heading and description of the page.
        draws: True if the page draws with Plotly, which is then included (0.5 MB, packed).
        links: Pages to link to.
        **values: Other names in the template.  ``data`` becomes JSON for the script; ``tiles`` and ``notes`` are shown
            in the head of the page.
    """
    usual: dict[str, Any] = {"data": None, "tiles": (), "notes": ()}
    return (
        _environment()
        .get_template(name)
        .render(
            kind=name.removesuffix(".html").replace("_", " "),
            headline=headline,
            links=links,
            plotly=base64.b64encode(packed_plotly()).decode() if draws else "",
            palette=PALETTE,
            **(usual | values),
        )
    )


@cache
def _environment() -> jinja2.Environment:
    """Return what keeps the compiled templates."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(template_text), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {}  # keys keep their order, such as that of colours
    return environment


def plain_figure(figure: go.Figure) -> Any:
    """Return a figure as plain values, for ``data``."""
    return json.loads(figure.to_json())


@cache
def packed_plotly() -> bytes:
    """Return Plotly with the traces that pages draw, compressed by gzip."""
    return files("reports").joinpath("plotly", "plotly.min.js.gz").read_bytes()


def template_text(name: str) -> str:
    """Return the text of a file of ``reports/templates``, also for other applications of the same look."""
    return files("reports").joinpath("templates", name).read_text(encoding="utf-8")


def write_page(html: str, path: AnyPath) -> None:
    """Write a page to a file beside ``path`` and rename it, so that a reader sees the old file or the whole new one.

    Raises:
        OSError: The folder does not exist or cannot be written; ``path`` is then untouched.
    """
    with replacing(path) as file:
        file.write_text(html, encoding="utf-8")
