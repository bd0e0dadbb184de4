"""The page of the workbench, its script and its style, made of its own templates and those of the reports."""

import hashlib
from functools import cache
from importlib.resources import files

import jinja2

from reports.pages.page_template import packed_plotly, template_text
from reports.style.palette import PALETTE

_PLOTLY = "plotly.js"


@cache
def served(name: str) -> bytes:
    """Return a file of the workbench: its page, style, script, or ``plotly.js``, which is compressed by gzip."""
    if name == _PLOTLY:
        return packed_plotly()
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        autoescape=name.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(name).render(palette=PALETTE, address=_address).encode()


def _address(name: str) -> str:
    """Return the address of a file, another one for every content: browsers never ask for it twice."""
    return f"{name}?{hashlib.sha256(served(name)).hexdigest()[:12]}"


def _text(name: str) -> str:
    """Return a template: one of this folder, else one of the reports."""
    own = files("orrery.workbench").joinpath("templates", name)
    return own.read_text(encoding="utf-8") if own.is_file() else template_text(name)
