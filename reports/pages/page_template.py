"""A page of its template: every page extends ``templates/base.html``."""

import json
from importlib.resources import files
from typing import Any

import jinja2
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from reports.style import PALETTE

__all__ = ["Links", "plain_figure", "rendered"]

Links = tuple[tuple[str, str], ...]
"""Pages beside a page: name and address; an empty address is the page itself."""


def rendered(name: str, *, headline: str, draws: bool = True, links: Links = (), **values: Any) -> str:
    """Fill in a template of ``reports/templates``.

    Args:
        name: Template; without its ending it is the kind of page, which an index shows.
        headline: The answer in a sentence: heading and description of the page.
        draws: Whether Plotly comes with the page (4.8 MB).
        links: Pages to link to.
        **values: What else the template names; ``data`` becomes JSON for the script, ``tiles`` and ``notes`` stand in
            the head.
    """
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    usual: dict[str, Any] = {"data": None, "tiles": (), "notes": ()}
    return environment.get_template(name).render(
        kind=name.removesuffix(".html").replace("_", " "),
        headline=headline,
        links=links,
        plotly=get_plotlyjs() if draws else "",
        palette=PALETTE,
        **(usual | values),
    )


def plain_figure(figure: go.Figure) -> Any:
    """A figure as plain values, for ``data``."""
    return json.loads(figure.to_json())


def _template(name: str) -> str:
    return files("reports").joinpath("templates", name).read_text(encoding="utf-8")
