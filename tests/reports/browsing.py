"""Pages opened in headless Chromium, with what goes wrong in them and what they ask for."""

import asyncio
import base64
import re
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from reports.pages.page_template import packed_plotly

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
FLAGS += ["--js-flags=--single-threaded"]  # threads that optimise code which runs once take a tenth more of a core
SHARED = "--process-per-site"
DESKTOP = {"width": 1280, "height": 720}
PHONE = {"width": 420, "height": 900}
CUT_WORDS = """() => [...document.querySelectorAll("svg.main-svg text")].filter((words) => {
    const a = words.getBoundingClientRect(), b = words.closest(".main-svg").getBoundingClientRect();
    return a.width && (a.left < b.left - 2 || a.right > b.right + 2);
}).map((words) => words.textContent)"""
AXE = (Path(__file__).parent / "data" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
FINDINGS = """async (rules) => {
  const seen = new Set(), hidden = [], known = ["class", "role", "scope", "style", "tabindex", "type"];
  const ground = (each) => each && (getComputedStyle(each).backgroundColor.endsWith(", 0)")
    ? ground(each.parentElement) : getComputedStyle(each).backgroundColor);
  for (const row of document.querySelectorAll("tbody tr")) {
    const form = [row, ...row.querySelectorAll("*")].map((each) => {
      const style = getComputedStyle(each), words = Boolean(each.textContent.trim());
      const said = ({ name, value }) => name + (known.includes(name) ? value.replace(/[\\d.]+/g, "") : Boolean(value));
      return [each.tagName, style.color, style.backgroundColor, style.font, words, ...[...each.attributes].map(said)];
    });
    const text = [ground(row), row.closest("table").className, ...form].join("\\n");
    if (seen.has(text) && !row.id && !row.hidden) hidden.push(row);
    seen.add(text);
  }
  hidden.forEach((row) => { row.hidden = true; });
  const found = await axe.run(document, {resultTypes: ["violations"], ...(rules && {runOnly: rules})});
  hidden.forEach((row) => { row.hidden = false; });
  return found.violations.map((each) => `${each.id}: ${each.help}; ${each.nodes.slice(0, 4).map((node) =>
    node.target + " " + node.any.concat(node.all, node.none).map((check) => check.message)[0]).join(" | ")}`);
}"""
"""What the accessibility linter finds; of rows of tables that differ in their words alone it sees the first."""
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium or google-chrome found")


def own_part(html):
    """A page without the library that it holds, which must be there once, packed and whole."""
    packed = re.findall(r'<script type="text/plain" id="plotly">([^<]*)</script>', html)
    assert [base64.b64decode(each) for each in packed] == [packed_plotly()]
    return html.replace(packed[0], "")


_running = []


@contextmanager
def chromium():
    """The browser of this process, whose pages are closed at the end; without playwright the test is skipped.

    It starts once, which takes more than a second of processor time, and ends with the session.  One page stays open:
    what other files open at the same address is drawn by the same process, which has compiled their library already.
    """
    sync_api = pytest.importorskip("playwright.sync_api")
    if not _running:
        playwright = sync_api.sync_playwright().start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, SHARED])
        folder = Path(tempfile.mkdtemp(prefix="browsing-"))  # unlike others of the library, no fork removes it
        _running.extend([browser, playwright, asyncio._get_running_loop(), folder])
        place = folder / "stays.html"
        place.touch()
        browser.new_context(viewport=DESKTOP).new_page().goto(place.as_uri())
    browser, _, loop, _ = _running
    asyncio._set_running_loop(loop)
    before = {page for context in browser.contexts for page in context.pages}
    try:
        yield browser
    finally:
        for context in list(browser.contexts):
            for page in set(context.pages) - before:
                page.close()
            if not context.pages:
                context.close()
        if len(before) == 1:
            asyncio._set_running_loop(None)  # playwright leaves its own behind, and others could not run one


def close_chromium():
    """End the browser of this process, if there is one."""
    if _running:
        browser, playwright, loop, folder = _running
        _running.clear()
        asyncio._set_running_loop(loop)
        browser.close()
        playwright.stop()
        shutil.rmtree(folder, ignore_errors=True)


def new_page(browser, origin, *, viewport=DESKTOP, color_scheme="light", **options):
    """A page for an origin, which has stored nothing; with options of the browser's, as if no other had been there."""
    page = browser.new_page(viewport=viewport, **options) if options else browser.contexts[0].new_page()
    page.set_viewport_size(viewport)
    page.emulate_media(color_scheme=color_scheme)
    forget = {"origin": origin, "storageTypes": "local_storage"}
    page.context.new_cdp_session(page).send("Storage.clearDataForOrigin", forget)
    return page


def opened_in(browser, path, **options):
    """The page of a file, drawn; ``problems``: words on its console and errors, ``requests``: addresses asked for.

    All stand at one address.
    """
    page = new_page(browser, "file://", **options)
    place = _running[-1] / "page.html"
    place.unlink(missing_ok=True)
    place.symlink_to(path.resolve())
    page.problems, page.requests, page.address = [], [], place.as_uri()
    page.on("console", lambda message: page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    page.goto(page.address)
    page.wait_for_selector("body[data-ready]", timeout=60_000)
    return page


def asked_for(page):
    """Addresses that a page asked for, less what it holds itself."""
    return [url for url in page.requests if not url.startswith(("data:", "blob:"))]


@contextmanager
def on_a_phone(path):
    """The page of a file on a narrow screen: at the end it fits, no words are cut, nothing failed or was asked for."""
    with chromium() as browser:
        page = opened_in(browser, path, viewport=PHONE)
        yield page
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width == PHONE["width"], f"{width} px wide"
        assert page.problems == [], page.problems
        assert page.requests == [page.address], page.requests
        assert page.evaluate(CUT_WORDS) == []
