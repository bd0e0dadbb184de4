"""A page of its template, with the drawing library in it."""

from importlib.resources import files
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

__all__ = ["rendered"]


def rendered(name: str, **values: Any) -> str:
    """Fill in a template of ``reports/templates``; it finds Plotly under ``plotly``."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    return environment.get_template(name).render(plotly=get_plotlyjs(), **values)


def _template(name: str) -> str:
    return files("reports").joinpath("templates", name).read_text(encoding="utf-8")
