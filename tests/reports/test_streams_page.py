"""The page of streams: what it says, that it needs nothing, and that a browser shows it."""

import re

import pytest
from browsing import needs_chromium, on_a_phone

from planner.models.registry import load_model
from reports.figures.streams import ladder_of_streams, occupancy_figure, timelines_figure
from reports.pages.page_template import write_page
from reports.pages.streams_page import stream_rows, streams_headline, streams_html
from studies.streams.schedule_comparison import compare_schedules
from studies.streams.stream_request import StreamRequest


@pytest.fixture(scope="module")
def found():
    return compare_schedules(load_model("resnet18", batch=4), StreamRequest(device="p100"))


def test_every_schedule_is_on_the_page_with_its_numbers(found):
    html = streams_html(found)
    body = html[html.index('<table id="rows">') : html.index("</table>")]
    _, rows = stream_rows(found)
    for cells in rows:
        for cell in cells:
            assert f">{cell.replace('+', '&#43;')}<" in body or f">{cell}<" in body
    assert streams_headline(found) in html
    assert re.search(r"<(script|link|img)[^>]+(src|href)=\"(?!data:)", html) is None


def test_every_sub_task_is_drawn_once_in_every_timeline(found):
    bars = [trace for trace in timelines_figure(found).data if trace.type == "bar"]
    assert sum(len(trace.x) for trace in bars) == sum(len(row.timeline) for row in found.results)
    assert {name for trace in bars for name in trace.y} >= {"all", "path 1, activation", "path 2, weight", "updates"}


def test_curves_and_bars_are_the_results(found):
    (bars,) = [trace for trace in ladder_of_streams(found).data if trace.type == "bar"]
    scale = bars.x[0] / found.results[0].iteration_s
    assert list(bars.x) == pytest.approx([row.iteration_s * scale for row in found.results])
    assert [len(trace.x) for trace in occupancy_figure(found).data] == [len(row.use) for row in found.results]


@pytest.mark.browser
@needs_chromium
def test_a_browser_draws_it(found, tmp_path):
    path = tmp_path / "streams.html"
    write_page(streams_html(found), path)
    with on_a_phone(path) as page:
        assert page.locator(".js-plotly-plot").count() >= 3
