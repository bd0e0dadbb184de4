"""The page in a real browser: nothing fails, nothing is fetched, what can be chosen can be seen."""

import pytest
from browsing import asked_for, chromium, needs_chromium, opened_in
from synthetic_comparison import make_comparison

from reports.comparison_page import write_comparison_page

pytestmark = [pytest.mark.browser, needs_chromium]


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """A page of 20,000 tasks a strategy, with what went wrong and what was asked for."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_comparison_page(make_comparison(tasks=20_000, devices=32), path)
    return opened_in(browser, path, viewport={"width": 1400, "height": 900}, color_scheme="dark")


def test_the_timeline_of_20k_tasks_shows_cells_then_bars(page):
    page.wait_for_selector("#timeline[data-mode=cells] .hm image")
    assert "20,000 of 20,000 tasks in view" in page.inner_text("#timeline-status")
    page.focus("#timeline")
    for _ in range(3):
        page.keyboard.press("+")
    page.wait_for_selector("#timeline[data-mode=bars] .bars .point")
    page.keyboard.press("0")
    page.wait_for_selector("#timeline[data-mode=cells]")


def test_dragging_zooms_and_a_bar_tells_its_task(page):
    page.select_option("#timeline-rows", "device:node0/gpu0")
    page.wait_for_selector("#timeline[data-mode=bars]")
    page.locator("#timeline-card").scroll_into_view_if_needed()
    box = page.locator("#timeline .nsewdrag").bounding_box()
    before = page.inner_text("#timeline-status")
    page.mouse.move(box["x"] + 50, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + 42, steps=4)
    page.mouse.up()
    page.wait_for_function("old => document.getElementById('timeline-status').textContent !== old", arg=before)
    page.wait_for_selector("#timeline[data-mode=bars] .bars .point")
    bar = page.locator("#timeline .bars .point").nth(3).bounding_box()
    page.mouse.move(bar["x"] + bar["width"] / 2, bar["y"] + bar["height"] / 2)
    hover = page.locator("#timeline .hovertext").first.text_content()
    assert all(word in hover for word in ("layer", "starts", "lasts", "ms"))
    page.select_option("#timeline-rows", "")


def test_the_strategy_chosen_is_the_one_shown(page):
    assert page.inner_text("#timeline-title").endswith("layerwise")
    page.get_by_text("owt", exact=True).locator("visible=true").last.click()
    page.wait_for_selector("body[data-chosen='2']")
    for title in ("timeline", "links", "memory", "layers"):
        assert page.inner_text(f"#{title}-title").endswith("owt")
    assert page.locator("table.layers:visible").count() == 1
    assert page.locator("#memory .bars .point").count() == 32


def test_every_link_can_be_shown(page):
    page.select_option("#links-count", "Infinity")
    assert page.inner_text("#links-status").startswith("40 of 40 links")
    page.fill("#links-filter", "plx7")
    assert page.inner_text("#links-status").startswith("4 of 40 links")
    page.fill("#links-filter", "no such link")
    assert page.inner_text("#links-status").startswith("0 of 40 links")


def test_every_figure_is_drawn_and_nothing_failed_or_was_fetched(page):
    for figure in ("breakdown", "agreement", "ladder", "timeline", "links", "memory"):
        assert page.locator(f"#{figure} .main-svg").count() > 0
    assert page.problems == []
    assert asked_for(page) == [page.address]
