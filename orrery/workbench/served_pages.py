"""The page of the workbench, its script and its style, made of its own templates and those of the reports."""

from functools import cache
from importlib.resources import files

import jinja2
from plotly.offline import get_plotlyjs

from reports.pages import template_text
from reports.style import PALETTE

__all__ = ["plotly_script", "served"]


@cache
def served(name: str) -> str:
    """Return a file of the workbench: ``workbench.html``, ``workbench.css`` or ``workbench.js``."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text), autoescape=name.endswith(".html"), undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )  # fmt: skip
    return environment.get_template(name).render(palette=PALETTE)


@cache
def plotly_script() -> str:
    """Return Plotly, which the package plotly ships."""
    return str(get_plotlyjs())


def _text(name: str) -> str:
    """Return a template: one of this folder, else one of the reports."""
    own = files("orrery.workbench").joinpath("templates", name)
    return own.read_text(encoding="utf-8") if own.is_file() else template_text(name)
