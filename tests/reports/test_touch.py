"""Fingers on the timeline, through the DevTools protocol: two pinch, one moves or taps, and the page still scrolls."""

import pytest
from browsing import chromium, needs_chromium, opened_in
from page_kinds import page_of

pytestmark = [pytest.mark.browser, needs_chromium]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with chromium() as browser:
        path = page_of("timeline", tmp_path_factory.mktemp("touch"))
        page = opened_in(browser, path, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
        page.touch = page.context.new_cdp_session(page)
        yield page


@pytest.fixture(autouse=True)
def in_sight(page):
    page.evaluate("steer('0'); $('picture').scrollIntoView({block: 'center', behavior: 'instant'})")
    page.wait_for_timeout(50)


def touch(page, kind, *places):
    points = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(places)]
    page.touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


def drawn_fingers(page, begins, ends, steps=8):
    """Fingers that are put down, drawn over the screen, and lifted."""
    touch(page, "touchStart", *begins)
    for step in range(1, steps + 1):
        part = step / steps
        places = [(a + (c - a) * part, b + (d - b) * part) for (a, b), (c, d) in zip(begins, ends, strict=True)]
        touch(page, "touchMove", *places)
        page.wait_for_timeout(16)
    touch(page, "touchEnd")


def window(page):
    return page.evaluate("v.x")


def spot(page, share_x=0.5, share_y=0.3):
    """A place in the plot, in pixels of the screen."""
    return page.evaluate(
        """([a, b]) => { const box = $("picture").getBoundingClientRect();
        return [box.left + GUTTER + a * plotWidth(), box.top + b * plotHeight()]; }""",
        [share_x, share_y],
    )


def test_two_fingers_apart_zoom_in_about_the_place_between_them(page):
    begin, end = window(page)
    (left, y), (right, _) = spot(page, 0.4), spot(page, 0.6)
    (far_left, _), (far_right, _) = spot(page, 0.1), spot(page, 0.9)
    drawn_fingers(page, [(left, y), (right, y)], [(far_left, y), (far_right, y)])
    a, b = window(page)
    assert (b - a) / (end - begin) == pytest.approx(0.2 / 0.8, rel=0.1)  # as much as the fingers went apart
    assert (a + b) / 2 == pytest.approx((begin + end) / 2, abs=0.03 * (end - begin))
    drawn_fingers(page, [(far_left, y), (far_right, y)], [(left, y), (right, y)])
    assert window(page) == pytest.approx([begin, end], abs=0.1 * (end - begin))
    assert page.evaluate("visualViewport.scale") == 1
    assert page.problems == []


def test_one_finger_moves_the_picture_by_its_own_way(page):
    page.evaluate("zoom(0.25)")
    begin, end = window(page)
    (right, y), (left, _) = spot(page, 0.8), spot(page, 0.3)
    drawn_fingers(page, [(right, y)], [(left, y)])
    a, b = window(page)
    assert b - a == pytest.approx(end - begin)
    assert (a - begin) / (end - begin) == pytest.approx(0.5, abs=0.08)  # the browser keeps the first pixels


def test_one_finger_upwards_scrolls_the_page_and_leaves_the_picture(page):
    before, (x, y) = window(page), spot(page)
    top = page.evaluate("scrollY")
    drawn_fingers(page, [(x, y)], [(x, y - 200)])
    page.wait_for_timeout(300)
    assert page.evaluate("scrollY") > top + 100
    assert window(page) == before
    assert page.evaluate("fingers.size") == 0


def test_a_tap_picks_the_task_below_it(page):
    x, y = page.evaluate(
        """() => { const box = $("picture").getBoundingClientRect(), row = v.rows.findIndex((each) => each.link < 0);
        let best = -1; for (let k = m.rowStart[v.rows[row].index]; k < m.rowStart[v.rows[row].index + 1]; k++)
          if (best < 0 || m.duration[m.item[k]] > m.duration[best]) best = m.item[k];
        const [top, lane] = spotOf(best); window.expected = nameOf(best);
        return [box.left + toX(m.start[best] + m.duration[best] / 2), box.top + top + lane / 2]; }"""
    )
    touch(page, "touchStart", (x, y))
    touch(page, "touchEnd")
    assert page.inner_text("#details-title") == page.evaluate("expected")
    assert page.problems == []
