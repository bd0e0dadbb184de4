"""The page of a sweep: every point on it, nothing asked for, and controls that redraw the curves."""

import re

import pytest
from browsing import needs_chromium, on_a_phone

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from reports.pages.eight_bit_page import eight_bit_html
from reports.pages.page_template import write_page
from reports.tables.eight_bit_tables import compression_table, crossing_lines, eight_bit_headline
from studies.eight_bit.compression_request import CompressionRequest
from studies.eight_bit.compression_sweep import sweep_compression


@pytest.fixture(scope="module")
def found():
    return sweep_compression(
        load_model("lenet5", batch=32),
        load_cluster("titanx-4"),
        CompressionRequest(
            sub_batches=(1, 3),
            types=("float16", "dynamic-tree"),
            devices=(2, 4),
            link_speeds=(0.01, 0.1, 1.0, 10.0),
        ),
    )


def test_every_point_is_on_the_page_with_its_numbers_or_its_reason(found):
    html = eight_bit_html(found)
    body = html[html.index('<table id="points">') :]
    values = set(re.findall(r'data-value="([^"]+)"', body))

    assert body.count("<tr") == 1 + len(found.points)
    for point in found.points:
        assert {str(point.iteration_s), str(point.speedup)} <= values or point.reason.replace(">", "&gt;") in body


def test_terminal_and_page_say_the_same(found):
    html = eight_bit_html(found)

    assert eight_bit_headline(found) in html
    for line in crossing_lines(found):
        assert line.partition(": ")[2] in html
    assert compression_table(found).row_count == 2 * 4


def test_words_name_the_fastest_point_with_links_as_they_are(found):
    best = min(
        (p for p in found.points if p.devices == 4 and p.link_speed == 1 and not p.reason),
        key=lambda point: point.iteration_s,
    )

    assert f"{best.type} with" in eight_bit_headline(found)
    assert f"{best.speedup:.3g}× one device" in eight_bit_headline(found)


@pytest.mark.browser
@needs_chromium
def test_a_browser_draws_it_and_its_controls_redraw_it(found, tmp_path):
    path = tmp_path / "whatif.html"
    write_page(eight_bit_html(found), path)
    with on_a_phone(path) as page:
        assert page.locator("#curve .scatterlayer .trace").count() == 3
        assert page.locator("#curve .scatterlayer .point").count() == 3 * 4
        page.locator("input[value=devices] + span").click()
        assert page.locator("#curve .scatterlayer .point").count() == 3 * 2
        page.locator("input[value=float16] + span").click()
        assert page.locator("#curve .scatterlayer .trace").count() == 2
        page.locator("input[value=gain] + span").click()
        assert "faster than float32" in page.locator("#curve").inner_text()
        assert page.locator("#curve-title").inner_text().startswith("Over devices: ")
        page.locator("#points thead button").nth(6).click()
        speedups = [
            float(text) for text in page.locator("#points tbody tr td:nth-child(7)[data-value]").all_inner_texts()
        ]
        assert speedups == sorted(speedups)
