"""All pages are one page: what every one of them has stands in one place."""

import gzip
import re
from importlib.resources import files

import pytest
from plotly.offline import get_plotlyjs_version

from reports.pages.page_template import packed_plotly, rendered

TEMPLATES = files("reports").joinpath("templates")
PAGES = sorted(each.name for each in TEMPLATES.iterdir() if each.name.endswith(".html"))


@pytest.mark.parametrize("name", [name for name in PAGES if name not in ("base.html", "macros.html")])
def test_every_page_extends_the_base_and_has_no_head_of_its_own(name):
    text = TEMPLATES.joinpath(name).read_text(encoding="utf-8")
    assert text.startswith('{% extends "base.html" %}')
    assert "<head>" not in text
    assert "<style>" not in text


def test_a_page_says_what_it_is_and_refuses_requests():
    html = rendered("base.html", headline="The <answer>", draws=False, links=(("here", ""), ("there", "b.html")))
    assert '<meta name="description" content="The &lt;answer&gt;">' in html
    assert "default-src 'none'" in html
    assert '<span aria-current="page">here</span><a href="b.html">there</a>' in html
    assert len(html) < 30_000


def test_the_library_of_pages_is_that_of_the_figures():
    """Of one version, and without what no page draws."""
    script = gzip.decompress(packed_plotly()).decode()
    assert re.findall(r'\.version="(\d+\.\d+\.\d+)"', script) == [get_plotlyjs_version()]
    assert len(packed_plotly()) < 400_000
