"""The oracle's page: what it says, that it needs nothing, and that a browser shows it."""

import re

import pytest
from browsing import needs_chromium, on_a_phone

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from reports.figures.oracle import epoch_figure, iteration_figure, oracle_memory_figure
from reports.pages.oracle_page import oracle_html
from reports.pages.page_template import write_page
from studies.oracle.oracle_request import OracleRequest
from studies.oracle.projection import oracle


@pytest.fixture(scope="module")
def table():
    return oracle(
        load_model("lenet5", batch=32),
        load_cluster("abci-v100"),
        OracleRequest(
            dataset="imagenet",
            devices=(1, 2, 4, 8, 16),
            batch_per_device=32,
            epochs=3,
            budget_gpu_hours=0.5,
            simulate=True,
        ),
        processes=1,
    )


@pytest.fixture(scope="module")
def html(table):
    return oracle_html(table)


def test_every_row_is_on_the_page_with_its_numbers(table, html):
    body = html[html.index('<table id="rows">') :]
    values = [float(text) for text in re.findall(r'data-value="([^"]+)"', body)]

    assert len(values) % len(table.rows) == 0 < len(values)
    for row in table.rows:
        assert {row.iteration_s, row.epoch_s, row.memory_bytes} <= set(values)
    assert len(table.limits) > 1
    assert all(limit.reason.replace("<", "&lt;") in html for limit in table.limits)


def test_bars_add_up_to_the_iterations(table):
    bars = [trace for trace in iteration_figure(table).data if trace.type == "bar"]
    drawn = sum(sum(trace.y) for trace in bars)
    shown_s = sum(row.iteration_s for row in table.rows)

    assert drawn == pytest.approx(shown_s, rel=1e-9) or drawn == pytest.approx(1e3 * shown_s, rel=1e-9)


def test_the_second_answer_is_drawn_over_the_bars_and_in_the_table(table, html):
    marks = [trace for trace in iteration_figure(table).data if trace.name == "simulated iteration"]
    planned = [row for row in table.rows if not row.simulated.refused]
    drawn, shown_s = sum(sum(trace.y) for trace in marks), sum(row.simulated.iteration_s for row in planned)

    assert drawn == pytest.approx(shown_s, rel=1e-9) or drawn == pytest.approx(1e3 * shown_s, rel=1e-9)
    for row in planned:
        assert f'data-value="{row.simulated.iteration_s}"' in html
    assert "To book for 3 epochs" in html


def test_lines_have_a_point_a_row_and_stars_the_winners(table):
    for figure in (epoch_figure(table), oracle_memory_figure(table)):
        points = sum(len(trace.x) for trace in figure.data if trace.mode == "lines+markers")
        assert points == len(table.rows)
    (stars,) = [trace for trace in epoch_figure(table).data if trace.name == "winner"]
    assert list(stars.x) == list(table.winners)


def test_a_question_that_nothing_fits_has_a_page(table):
    found = oracle(
        load_model("cosmoflow:size=512", batch=64),
        load_cluster("titanx-4"),
        OracleRequest(dataset="cosmoflow", devices=(1,)),
    )

    assert "No strategy fits in memory" in oracle_html(found)


@pytest.mark.browser
@needs_chromium
def test_a_browser_draws_it_without_a_request(table, tmp_path):
    path = tmp_path / "oracle.html"
    write_page(oracle_html(table), path)
    with on_a_phone(path) as page:
        assert page.locator("#iterations .barlayer .point").count() > 50
        assert page.locator("#epochs .scatterlayer .trace").count() >= 8
