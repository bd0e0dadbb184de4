"""Pages of every kind in a real browser: nothing fails, nothing is fetched, and an accessibility linter agrees."""

import re
from importlib.resources import files
from pathlib import Path

import pytest
from browsing import AXE, FINDINGS, asked_for, chromium, needs_chromium, opened_in
from page_kinds import KINDS, page_of

GEOMETRY = (Path(__file__).parent / "data" / "geometry.js").read_text(encoding="utf-8").partition("\n")[2]
KEY_ELEMENTS = {
    "comparison": "#breakdown .main-svg, #picture, table.layers",
    "timeline": "#picture, #overview, #stretches tbody tr",
    "plan": "#network .node, #machine .link, #memory-map, table.layers",
    "sweep": "#picture .main-svg, #points tbody tr",
    "index": "#results tbody tr",
    "oracle": "#iterations .main-svg, #rows tbody tr, #winners",
    "whatif": "#change .main-svg, #rows tbody tr, #sensitivities tbody tr",
    "size": "#curve .main-svg, #rows tbody tr",
    "streams": "#ladder .main-svg, #rows tbody tr",
    "eight_bit": "#curve .main-svg, #points tbody tr",
    "eight_bit_paper": "#scatter .main-svg, #many .main-svg, #rows tbody tr",
    "reproduce": "#scatter .main-svg, #rows tbody tr",
    "validation": "#ladder .main-svg, #picture, #comparison tbody tr",
    "accuracy": "#losses .main-svg, #rows tbody tr",
    "fidelity": "#errors .main-svg, #measures tbody tr, #intervals tbody tr",
}
TILE = """(name) => { const tile = [...document.querySelectorAll(".tiles div")].find((each) =>
    each.querySelector("dt").textContent === name);
  return tile.querySelector("dd").textContent.trim().replace(/\\s+/g, " ").replace(/ ([%×])$/, ""); }"""
ANSWERS = {
    "comparison": (TILE, "expected iteration"),
    "timeline": (TILE, "expected iteration"),
    "plan": (TILE, "expected iteration"),
    "sweep": ("() => 'batch 64 in 550 µs'", None),  # the row with most samples a second of sweep_frame
    "index": ("() => `${document.querySelectorAll('#results a[href$=html]').length} page`", None),
    "oracle": ("() => document.querySelector('#winners tr:last-child td:nth-child(4)').textContent.trim()", None),
    "size": (TILE, "devices"),
    "whatif": (
        "() => document.querySelector('#rows tr:nth-last-child(2) td:nth-child(3)').firstChild.textContent.trim()",
        None,
    ),
    "streams": (TILE, "iteration"),
    "eight_bit": (
        "() => three(Math.max(...data.points.filter((each) => each.link_speed === 1).map((each) => each.speedup)))",
        None,
    ),
    "eight_bit_paper": (
        "() => String(data.rows.filter((each) => each.way === 'closed form'"
        " && ['speedup', 'node'].includes(each.key[0])).length)",
        None,
    ),
    "validation": (TILE, "largest error"),
    "accuracy": ("() => document.querySelector('#rows tbody tr td:nth-child(3)').textContent.trim()", None),
    "reproduce": ("() => `of ${document.querySelectorAll('#rows tbody tr').length} printed`", None),
    "fidelity": (
        "() => { const held = [...document.querySelectorAll('#measures td')].filter((each) =>"
        " each.textContent.includes('(bar ')); const late = document.querySelectorAll('#measures strong').length;"
        " return `${held.length - late} of ${held.length} errors`; }",
        None,
    ),
}
"""What finds the number of the answer on a page of a kind, which its headline must have too."""
FIRST_FIGURE = """() => {
  const first = document.querySelector("main figure, main svg, main canvas, main table");
  const box = first.getBoundingClientRect();
  const drawn = first.matches("table") ? first.tBodies[0].rows.length
    : first.matches("canvas") ? first.width : first.querySelectorAll("svg *, *").length;
  return [box.top + scrollY, box.width, drawn];
}"""
CUT = """() => [...document.querySelectorAll("table")].filter((table) => table.checkVisibility() &&
  table.scrollWidth > table.parentElement.clientWidth + 1).map((table) => `${table.id} ${table.scrollWidth} px`)"""
COVERED = """() => {
  const found = [], range = document.createRange(), words = [...document.querySelectorAll("h1, h2, h3, p, figcaption")];
  for (const tools of document.querySelectorAll(".modebar-group")) for (const each of words) {
    range.selectNodeContents(each);
    const a = tools.getBoundingClientRect();
    if (a.width && [...range.getClientRects()].some((b) =>
        a.left < b.right && b.left < a.right && a.top < b.bottom - 2 && b.top < a.bottom - 2))
      found.push(each.textContent);
  }
  return [document.querySelectorAll(".modebar-group").length, found];
}"""
FOLLOWED = """async () => {
  for (let i = 0; i < 100 && (i < 6 || document.documentElement.scrollWidth > innerWidth); i++) {
    await new Promise((drawn) => requestAnimationFrame(drawn));
    if (i === 2) await new Promise((drawn) => setTimeout(drawn, 150));
  }
}"""
"""Waits until tables and figures have taken the page's width: tables in the next frames, Plotly after 100 ms."""
PAPER = 1047
"""Width of A4, landscape, between its margins, in pixels."""
OUTLINED = """() => {
  const style = getComputedStyle(document.activeElement), next = document.activeElement.nextElementSibling;
  const drawn = (one) => one && one.outlineStyle !== "none" && parseFloat(one.outlineWidth) >= 2;
  const box = document.activeElement.querySelector?.("rect.box");
  return drawn(style) || (next && drawn(getComputedStyle(next))) ||
    Boolean(box && parseFloat(getComputedStyle(box).strokeWidth) >= 2) || document.activeElement === document.body;
}"""
pytestmark = [pytest.mark.browser, needs_chromium, pytest.mark.timeout(300)]


def test_every_template_has_its_page_here():
    """A new kind of page comes into these tests, or this fails."""
    templates = {each.name for each in files("reports").joinpath("templates").iterdir() if each.name.endswith(".html")}
    assert {f"{kind}.html" for kind in vars(KINDS)} == templates - {"base.html", "macros.html"}
    assert vars(KINDS).keys() == KEY_ELEMENTS.keys() == ANSWERS.keys()


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module", params=list(vars(KINDS)))
def opened(request, browser, tmp_path_factory):
    """A page of a kind, with what went wrong and what was asked for."""
    path = page_of(request.param, tmp_path_factory.mktemp(request.param))
    page = opened_in(browser, path, viewport={"width": 1280, "height": 900}, color_scheme="light")
    page.kind = request.param
    yield page
    page.close()


def test_what_matters_is_there_and_nothing_failed_or_was_fetched(opened):
    for selector in KEY_ELEMENTS[opened.kind].split(", "):
        assert opened.locator(selector).count() > 0, selector
    assert opened.inner_text("#answer").strip()
    assert opened.get_attribute("meta[name=orrery-page]", "content") == opened.kind.replace("_", " ")
    assert opened.problems == []
    assert asked_for(opened) == [opened.address]


def test_no_words_are_cut_off_or_lie_on_each_other(opened):
    """By geometry, on the page as a reader opens it."""
    assert opened.evaluate(GEOMETRY) == []
    assert opened.problems == []


def test_headline_and_first_figure_answer_within_one_screen(opened):
    """The headline is a sentence with the number of the answer; the first figure begins on the first screen."""
    headline = opened.inner_text("#answer").strip()
    assert headline.endswith("."), headline
    find, name = ANSWERS[opened.kind]
    assert opened.evaluate(find, name) in headline
    assert opened.get_attribute("meta[name=description]", "content") == headline
    top, wide, marks = opened.evaluate(FIRST_FIGURE)
    assert top < 600
    assert wide > 100
    assert marks > 0


def test_the_keyboard_reaches_the_page_and_is_seen(opened):
    opened.evaluate("document.activeElement.blur()")
    seen = set()
    for _ in range(12):
        opened.keyboard.press("Tab")
        seen.add(opened.evaluate("document.activeElement.outerHTML.slice(0, 80)"))
        assert opened.evaluate(OUTLINED), opened.evaluate("document.activeElement.outerHTML.slice(0, 200)")
    assert len(seen) > 1
    assert opened.problems == []


def test_a_wide_screen_has_room_for_every_table(opened):
    """None is cut off by the box that it scrolls in, where there is no reason to scroll."""
    opened.set_viewport_size({"width": 1440, "height": 900})
    opened.evaluate(FOLLOWED)
    assert opened.evaluate(CUT) == []
    assert opened.locator("table.stacked").count() == 0
    assert opened.evaluate(GEOMETRY) == []


def test_no_words_are_cut_off_or_lie_on_each_other_in_print(opened):
    opened.set_viewport_size({"width": PAPER, "height": 900})
    opened.emulate_media(media="print")
    opened.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    assert opened.evaluate(GEOMETRY) == []
    assert opened.problems == []
    opened.emulate_media(media="screen")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_accessibility_linter_finds_nothing(opened, theme):
    """All rules in the light theme; in the dark one those about colours, as nothing else changes."""
    for _ in range(3):
        if opened.evaluate("document.documentElement.dataset.theme") == theme:
            break
        opened.click("#theme")
    dark = opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 24)"
    assert dark == (theme == "dark")
    opened.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    if theme == "light":
        opened.evaluate(AXE)
    assert opened.evaluate(FINDINGS, ["color-contrast"] if dark else None) == []
    assert opened.problems == []


def test_no_words_are_cut_off_or_lie_on_each_other_on_a_phone(opened):
    """Opened anew in the dark, by a reader who has chosen no theme; the last test of a page."""
    opened.evaluate("localStorage.clear()")
    opened.set_viewport_size({"width": 390, "height": 844})
    opened.emulate_media(color_scheme="dark")
    opened.reload()
    opened.wait_for_selector("body[data-ready]", timeout=60_000)
    assert opened.evaluate(GEOMETRY) == []
    assert opened.problems == []
    assert set(asked_for(opened)) == {opened.address}


@pytest.mark.parametrize("width", [1440, 390])
def test_tools_that_fingers_see_cover_no_words(browser, tmp_path, width):
    """Where nothing hovers, the tools of a figure always show."""
    screen = {"width": width, "height": 900}
    page = opened_in(browser, page_of("comparison", tmp_path), viewport=screen, has_touch=True, is_mobile=True)
    tools, covered = page.evaluate(COVERED)
    assert tools > 2
    assert covered == []
    page.close()


def test_names_beside_bars_stay_apart_on_a_phone(browser, tmp_path):
    """Long names that begin alike are drawn in lines, so that each is another one."""
    page = opened_in(browser, page_of("whatif", tmp_path), viewport={"width": 390, "height": 844})
    said = "node0/gpu0 -> node0/gpu1 (nvlink1) failed, both ways"
    lines = page.evaluate("([name, most, lines]) => inLines(name, most, lines).split('<br>')", [said, 22, 3])
    assert " ".join(lines) == said
    assert max(map(len, lines)) <= 22
    both = [
        page.evaluate("(name) => inLines(name, 16, 1)", said.replace("failed", word)) for word in ("failed", "slow")
    ]
    assert all("…" in each and len(each) <= 16 and each.endswith("ways") for each in both)
    page.close()


def test_words_in_a_wrong_place_are_found(browser, tmp_path):
    """The check can fail: words cut off by a box, on one another, and beside the page."""
    path = tmp_path / "wrong.html"
    path.write_text(
        """<!doctype html><title>x</title><body data-ready="yes"><main>
        <div style="width:40px;overflow:hidden;white-space:nowrap">these are cut off</div>
        <p style="position:absolute;left:20px;top:90px">one</p><p style="position:absolute;left:20px;top:90px">two</p>
        <div style="overflow:auto;max-height:20px">a<br>b<br>c</div>
        <p style="white-space:nowrap;width:10px">%s</p>
        <table style="width:20px;overflow-wrap:anywhere"><tr><td>devices</td></tr></table>
        <svg width="50" height="30"><text x="0" y="20">words beyond</text></svg></main>"""
        % ("long " * 400)
    )
    page = opened_in(browser, path)
    found = " ".join(page.evaluate(GEOMETRY))
    for words in ("cut off", "on each other", "hides rows", "page: ", "broken: devices", "outside its drawing"):
        assert words in found, found
    page.close()


def test_the_pictures_of_a_sweep_are_drawn_and_filters_hold_for_them(browser, tmp_path):
    page = opened_in(browser, page_of("sweep", tmp_path))
    assert page.inner_text("#caption").startswith("12 of 13 points drawn")
    for kind, selector in (
        ("heat", ".hm image"),
        ("front", ".scatterlayer .point"),
        ("points", ".scatterlayer .point"),
    ):
        page.locator(f"input[value={kind}]").dispatch_event("click")
        page.wait_for_selector(f"#picture {selector}")
    page.fill("input[aria-label='filter of devices']", ">=2")
    page.fill("input[aria-label='filter of strategy']", "ow")
    assert page.inner_text("#shown").startswith("1 to 4 of 4 after filtering, of 13")
    assert page.inner_text("#caption").startswith("4 of 13 points drawn")
    assert page.problems == []
    page.close()


def test_a_task_picked_on_the_timeline_says_what_it_waited_for(browser, tmp_path):
    page = opened_in(browser, page_of("timeline", tmp_path), viewport={"width": 1400, "height": 900})
    page.click("#alike")
    assert re.search(r"\b(\d+) of \1 tasks", page.inner_text("#status"))
    page.fill("#search", "fc1")
    page.press("#search", "Enter")
    assert "fc1" in page.inner_text("#details-title")
    assert "the last" in page.inner_text("#details-body")
    page.focus("#stage")
    for key in ("+", "w", "ArrowRight", "a", "s", "d"):
        page.keyboard.press(key)
    assert " tasks in view" in page.inner_text("#status")
    page.keyboard.press("0")
    assert re.search(r"\b(\d+) of \1 tasks", page.inner_text("#status"))
    assert page.problems == []
    page.close()


def test_names_of_tasks_begin_where_their_bars_do_however_often_they_are_drawn(browser, tmp_path):
    """The words of rows and axes lie to the right of their places; names of tasks never do."""
    page = opened_in(browser, page_of("timeline", tmp_path), viewport={"width": 1400, "height": 900})
    page.evaluate("""() => {
        window.written = [];
        const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
            window.written.push([text, this.textAlign]);
            return write.call(this, text, ...place);
        };
    }""")
    page.click("#alike")
    page.focus("#stage")
    for key in ("+", "+", "-"):
        page.keyboard.press(key)
    page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    written = page.evaluate("window.written")
    assert {align for text, align in written if text.startswith(("conv", "fc"))} == {"left"}
    assert {align for text, align in written if text.startswith("node0/gpu")} == {"right"}
    said = {text for text, _ in written if text.startswith("fc1")}
    assert {"fc1", "fc1 dX", "fc1 dW"} & said, said
    page.close()
