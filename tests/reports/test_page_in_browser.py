"""The page in a real browser: nothing fails, nothing is fetched, what can be chosen can be seen."""

import re

import pytest
from browsing import asked_for, chromium, needs_chromium, opened_in
from synthetic_comparison import make_comparison

from reports.pages.comparison_page import write_comparison_page

pytestmark = [pytest.mark.browser, needs_chromium]


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """A page of 20,000 tasks a strategy, with what went wrong and what was asked for."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    comparison = make_comparison(tasks=20_000, devices=32)
    write_comparison_page(comparison, path)
    page = opened_in(browser, path, viewport={"width": 1400, "height": 900}, color_scheme="dark")
    page.comparison = comparison
    return page


def shown(page):
    """Numbers that the status tells: tasks in view, of how many, bars, and tasks summed."""
    numbers = re.findall(r"\d[\d,]*", page.inner_text("#status").partition("summed")[0])
    return [int(each.replace(",", "")) for each in numbers[:4]]


def coloured(page):
    """Pixels of the picture in which a task is drawn, in the colours of kinds."""
    return page.evaluate(
        """() => { const picture = $("picture"), context = picture.getContext("2d");
        const { data: pixels } = context.getImageData(GUTTER, 0, picture.width - GUTTER, picture.height - AXIS);
        let found = 0;
        for (let at = 0; at < pixels.length; at += 4) {
          const most = Math.max(...pixels.subarray(at, at + 3)), least = Math.min(...pixels.subarray(at, at + 3));
          if (pixels[at + 3] > 40 && most - least > 40) found++;
        }
        return found; }"""
    )


def test_the_timeline_of_20k_tasks_sums_the_short_and_tells_them_apart_on_zooming(page):
    seen, count, bars, merged = shown(page)
    assert seen == count == bars == 20_000  # as many bars: each task is drawn in one row
    assert merged > 1000
    assert coloured(page) > 10_000
    page.focus("#stage")
    for _ in range(13):
        page.keyboard.press("+")
    seen, count, *_ = shown(page)
    assert 0 < seen < count == 20_000
    assert "summed" not in page.inner_text("#status")
    page.keyboard.press("0")
    assert shown(page) == [20_000, 20_000, bars, merged]


def test_dragging_zooms_and_a_bar_tells_its_task(page):
    page.fill("#row-filter", "node0/gpu0")
    before = shown(page)[0]
    page.locator("#stage").scroll_into_view_if_needed()
    box = page.locator("#picture").bounding_box()
    middle = box["y"] + (box["height"] - 26) / 4
    page.mouse.move(box["x"] + 400, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, middle + 2, steps=4)
    page.mouse.up()
    assert 0 < shown(page)[0] < before
    at = page.evaluate("[0.25, 0.5, 0.75].map((part) => part * (GUTTER + v.x.length * 100))")
    said = set()
    for x in (*at, box["width"] / 2):
        page.mouse.move(box["x"] + x, middle)
        said.add(page.inner_text("#tip"))
    assert any(all(word in tip for word in ("starts", "lasts")) for tip in said), said
    page.fill("#row-filter", "")
    page.focus("#stage")
    page.keyboard.press("0")


def test_a_task_found_tells_its_numbers_and_the_longest_are_listed(page):
    page.fill("#search", "conv")
    page.press("#search", "Enter")
    assert "conv" in page.inner_text("#details-title")
    assert "node0/gpu0" in page.inner_text("#details-body")
    page.fill("#search", "")
    page.focus("#stage")
    page.keyboard.press("0")
    page.locator("#longest summary").click()
    rows = page.locator("#longest tbody tr")
    rows.first.wait_for()
    assert rows.count() == 12
    first = page.evaluate("Math.max(...m.duration) * m.tick")
    unit = re.search(r"\[(.*)]", page.locator("#longest th").nth(5).inner_text())[1]
    shown = float(rows.first.locator("td").nth(5).inner_text().replace(",", ""))
    assert shown == pytest.approx(first / {"s": 1, "ms": 1e-3, "µs": 1e-6}[unit], rel=5e-3)
    assert all(
        re.fullmatch(r"[\d.,]+", cell) for cell in rows.locator("td:nth-child(n+5):nth-child(-n+6)").all_inner_texts()
    )
    page.locator("#longest summary").click()


def test_the_strategy_chosen_is_the_one_shown(page):
    assert page.inner_text("#timeline-title").endswith("layerwise")
    page.get_by_text("owt", exact=True).locator("visible=true").last.click()
    page.wait_for_selector("body[data-chosen='2']")
    for title in ("timeline", "links", "memory", "layers"):
        assert page.inner_text(f"#{title}-title").endswith("owt")
    assert page.locator("table.layers:visible").count() == 1
    assert page.locator("#memory .bars .point").count() == 32


def rows_of_links(page):
    """Names of the rows of the heat map of links, each with its mean use."""
    return page.evaluate("$('links').layout.yaxis.ticktext")


def test_links_are_shown_by_class_and_those_used_alike_together(page):
    """A row's mean is that of all its links, computed here from the comparison."""
    use = page.comparison.strategies[2].link_use
    page.get_by_text("owt", exact=True).locator("visible=true").last.click()
    page.wait_for_selector("body[data-chosen='2']")
    means = {"switch-port": 100 * use.share[:20].mean(), "fdr": 100 * use.share[20:].mean()}
    expected = sorted(means, key=lambda name: -means[name])
    shown = rows_of_links(page)
    assert [row.partition(":")[0] for row in shown] == [f"{name} × 20" for name in expected]
    assert [float(row.split()[-2]) for row in shown] == pytest.approx([means[name] for name in expected], abs=0.11)
    assert page.inner_text("#links-status").startswith("40 of 40 links in 2 rows")
    page.select_option("#links-count", "Infinity")
    assert page.inner_text("#links-status").startswith("40 of 40 links in 21 rows")
    assert sum(row.endswith("%") and "and 19 alike" in row for row in rows_of_links(page)) == 1
    page.fill("#links-filter", "plx7")
    assert page.inner_text("#links-status").startswith("4 of 40 links")
    page.fill("#links-filter", "fdr")
    assert page.inner_text("#links-status").startswith("20 of 40 links in 1 row")
    page.fill("#links-filter", "no such link")
    assert page.inner_text("#links-status").startswith("0 of 40 links")


def test_every_figure_is_drawn_and_nothing_failed_or_was_fetched(page):
    for figure in ("breakdown", "agreement", "ladder", "links", "memory"):
        assert page.locator(f"#{figure} .main-svg").count() > 0
    assert page.problems == []
    assert asked_for(page) == [page.address]
