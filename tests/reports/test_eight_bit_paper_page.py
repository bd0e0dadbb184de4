"""The page of the 8-bit paper: every value on it, its tables drawn, nothing asked for."""

import re

import pytest
from browsing import needs_chromium, on_a_phone

from reports.pages.page_template import write_page
from reports.pages.paper_pages import INCONSISTENCIES, computed_values, paper_headline, paper_html
from studies.reproduce.paper_claims import Claim, ComputedValue

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def found():
    return computed_values(numbers=20_000)


def test_every_value_and_inconsistency_is_on_the_page(found):
    html = paper_html(found)
    body = html[html.index('<table id="rows">') :]
    values = set(re.findall(r'data-value="([^"]+)"', body))

    assert body.count("<tr") == 1 + len(found)
    assert {each.claim.source for each in found} >= {"Table 1", "Table 2", "Table 6", "Table 7", "Tables 1 and 7"}
    assert all(str(each.ours) in values for each in found)
    assert all(line.replace("'", "&#39;") in html for line in INCONSISTENCIES)


def test_headline_counts_each_way_and_names_the_farthest():
    printed = [Claim("Table 1", "a", ("node", "32"), "2", "x"), Claim("Table 7", "b", ("speedup", "128"), "10", "x")]
    error = Claim("Table 2", "c", ("error", "relative", "A", "linear"), "4", "%")
    answers = [ComputedValue(printed[0], "closed form", 2.1, ""), ComputedValue(printed[1], "closed form", 7.0, "")]
    answers += [
        ComputedValue(printed[1], "simulation of Sec. 2.4", 99.0, ""),
        ComputedValue(error, "as published", 3.9, ""),
    ]

    assert paper_headline(answers) == (
        "Compared with the printed values: closed form: 2 speedups, half within 30.0 %, all within 30.0 %; "
        "as published: 1 relative errors, half within 2.5 %, all within 2.5 %."
    )


@pytest.mark.browser
@needs_chromium
def test_a_browser_draws_the_tables_and_its_controls_redraw_them(found, tmp_path):
    path = tmp_path / "paper.html"
    write_page(paper_html(found), path)
    with on_a_phone(path) as page:
        assert page.locator("#many .scatterlayer .trace").count() == 4
        assert page.locator("#many .scatterlayer .point").count() == 4 * 6
        assert page.locator("#four .barlayer .point").count() == 3 * 3
        assert page.locator("#errors .barlayer .point").count() == 3 * 16
        assert page.locator("#passes .scatterlayer .trace").count() == 3
        page.locator("input[value=forward] + span").click()
        assert page.locator("#passes .scatterlayer .trace").count() == 2
        page.locator("#table").select_option("Table 2")
        assert page.locator("#rows tbody tr:visible").count() == 4 * 4 * 2 * 2
