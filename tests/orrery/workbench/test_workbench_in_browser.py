"""The workbench in a real browser: from a choice to an exported page, in either theme, on a desktop and a phone."""

import re
import sys
import time
from pathlib import Path

import pytest

REPORTS = Path(__file__).parents[2] / "reports"
sys.path.append(str(REPORTS))

from browsing import AXE, FINDINGS, chromium, needs_chromium, new_page  # noqa: E402

CLIPPED = """() => [...document.querySelectorAll(
    "h1, h2, h3, p, label, legend, button, th, td, li, span, summary, code, text")]
  .filter((each) => {
    if (!each.checkVisibility() || !each.textContent.trim()) return false;
    if (each.closest("#machine, .sr, svg:not(.main-svg), .modebar")) return false;
    const frame = each.closest(".scroll"), box = each.getBoundingClientRect();
    if (!box.width) return false;
    if (!frame && (box.left < -1 || box.right > document.documentElement.clientWidth + 1)) return true;
    const style = getComputedStyle(each);
    return !(each instanceof SVGElement) && style.overflow === "hidden" && each.scrollWidth > each.clientWidth + 1;
  }).map((each) => `${each.tagName} ${each.textContent.slice(0, 60)}`)"""
OVERLAPS = """() => {
  const words = [...document.querySelectorAll("#ladder .main-svg text, #side-figure .main-svg text")]
    .filter((each) => each.textContent.trim());
  const boxes = words.map((each) => each.getBoundingClientRect()), found = [];
  for (let i = 0; i < boxes.length; i++) for (let k = 0; k < i; k++) {
    const a = boxes[i], b = boxes[k];
    if (a.left + 1 < b.right && b.left + 1 < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom)
      found.push(`${words[i].textContent} over ${words[k].textContent}`);
  }
  return found;
}"""
pytestmark = [pytest.mark.browser, needs_chromium, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


def opened(browser, server, address="", **options):
    """A page of the workbench, with what went wrong in it and what it asked for."""
    page = new_page(browser, server.base, **{"viewport": {"width": 1280, "height": 900}, **options})
    page.problems, page.asked = [], []
    page.on("console", lambda message: page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(address or server.address)
    page.wait_for_selector("body[data-ready]")
    return page


def until(page, condition, seconds=110):
    """Wait until a condition holds; the page's own policy lets no text be evaluated inside it."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, (condition, page.inner_text("#problem"), page.inner_text("#status-line"))
        time.sleep(0.05)


def settled(page, what):
    until(page, f"document.body.dataset.state === 'idle' && {what}")


def compare_small(page, batch="64"):
    """Compare LeNet-5 on four GPUs, until its timeline is drawn."""
    page.select_option("#model", "lenet5")
    page.select_option("#cluster", "titanx-4")
    until(page, "document.querySelectorAll('#machine .device').length === 4")
    page.fill("#batch", batch)
    for name in ("spatial", "layerwise"):
        page.locator(f"#strategies input[value={name}]").uncheck()
    page.click("#compare")
    settled(page, "document.body.dataset.compared && document.body.dataset.chosen")


def moved(page, slider, to):
    """Move a slider, as a drag does in its last step."""
    page.evaluate(
        f"(to) => {{ const r = $('{slider}'); r.value = to; r.dispatchEvent(new Event('input', {{bubbles: true}})); }}",
        to,
    )
    settled(page, "document.body.dataset.repriced === document.body.dataset.wanted")


def times(page):
    """Simulated seconds of every strategy, as the table has them."""
    heads = [head.inner_text().split()[0] for head in page.locator("#comparison th[scope=col]").all()]
    at = heads.index("simulated")
    unit = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[
        page.locator("#comparison th[scope=col]").nth(at).inner_text().split("[")[1][:-1]
    ]
    rows = page.locator("#comparison tbody tr").all()
    cells = {row.locator("th").inner_text(): row.locator("td").nth(at - 1) for row in rows}
    return {name: float(cell.inner_text().replace(",", "")) * unit for name, cell in cells.items()}


def test_any_plan_can_be_added(browser, server):
    """Its text is its name in the table, and a change of the cluster prices it as it is."""
    page, text = opened(browser, server), "data,micro-batches=4,recompute=segments"
    page.fill("#plan", text)
    page.press("#plan", "Enter")
    assert page.locator("#strategies input:checked").last.input_value() == text
    compare_small(page)
    first = times(page)
    assert list(first) == ["data", "owt", text]
    assert first[text] > first["data"]
    page.locator("#machine .hit[data-link*='gpu0']").first.dispatch_event("click")
    moved(page, "bandwidth", -60)
    assert times(page)[text] > first[text]
    assert page.problems == []


def test_from_a_choice_to_an_exported_page(browser, server, tmp_path):
    """Pick, compare, drag, keep, keep another, two side by side, export; nothing fails, nothing is asked elsewhere."""
    page = opened(browser, server)
    compare_small(page)
    first = times(page)
    assert list(first) == ["data", "owt"]
    assert page.locator("#ladder .main-svg").count() > 0
    page.fill("#scenario-name", "today")
    page.click("#keep-button")
    page.wait_for_selector("#scenarios tbody tr")

    page.locator("#machine .hit[data-link*='gpu0']").first.dispatch_event("click")
    assert page.input_value("#link") == "slot"
    moved(page, "bandwidth", -60)
    assert "Ladder after" in page.inner_text("#status-line")
    slower = times(page)
    assert all(slower[name] > first[name] for name in first)
    assert page.locator("#machine .link.changed").count() > 0
    page.locator("#machine .device").nth(2).dispatch_event("click")
    assert page.input_value("#device") == "node0/gpu2"
    moved(page, "speed", -30)
    assert times(page)["data"] > slower["data"]
    assert page.locator("#changes li").count() == 2
    page.fill("#scenario-name", "slow slots & a <straggler>")
    page.click("#keep-button")
    page.wait_for_selector("#scenarios tbody tr:nth-child(2)")

    page.select_option("#left", label="today")
    page.select_option("#right", label="slow slots & a <straggler>")
    page.click("#pair button")
    page.wait_for_selector("#side-figure .main-svg")
    assert re.match(r"today trains .* times as many images a second", page.inner_text("#side-headline"))
    assert page.inner_text("#differences tbody").startswith("changes")
    assert page.locator("#side-rows tbody tr").count() == 2

    with page.expect_download(timeout=60_000) as download:
        page.click("#export")
    saved = tmp_path / "page.html"
    download.value.save_as(saved)
    offline = browser.new_page()
    asked = []
    offline.on("request", lambda request: asked.append(request.url))
    offline.goto(saved.as_uri())
    offline.wait_for_selector("body[data-ready]")
    assert offline.get_attribute("meta[name=orrery-page]", "content") == "comparison"
    assert "link.slot.bandwidth_gbyte_per_s" in offline.inner_text("#answer")
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [saved.as_uri()]

    assert page.problems == []
    assert {url for url in page.asked if not url.startswith((server.address, "data:", "blob:"))} == set()
    page.close()


SHOWN = """() => [...document.querySelectorAll("#comparison tr, #changes li, #answer, #command, #remarks, #origin")]
  .map((each) => each.innerText).concat($("model").value, $("cluster").value, $("batch").value, $("price").value,
    $("shown").querySelector("input:checked").value, document.body.dataset.chosen,
    $("bandwidth-number").value, $("link").value)"""
PICKED = "$('shown').querySelector('input:checked')?.value"


def state(page):
    """All that a page shows of its subject, changes and results, once nothing is under way."""
    settled(page, f"$('comparison').tBodies[0].rows.length && document.body.dataset.chosen === {PICKED}")
    return page.evaluate(SHOWN)


def test_the_address_is_the_state(browser, server):
    """Reloaded, in a second tab, and by going back and forward a page shows the same, and computes nothing anew."""
    page = opened(browser, server)
    compare_small(page)
    compared = state(page)
    page.select_option("#link", "slot")
    page.wait_for_timeout(500)  # what follows sooner is one entry of the history
    moved(page, "bandwidth", -60)
    page.wait_for_timeout(500)
    page.fill("#price", "2.5")
    page.press("#price", "Tab")
    settled(page, "document.body.dataset.repriced === document.body.dataset.wanted")
    assert "money per million images" in page.inner_text("#comparison thead")
    page.wait_for_timeout(500)
    page.locator("#shown input[value=data]").dispatch_event("click")
    settled(page, "document.body.dataset.chosen === 'data'")
    page.wait_for_timeout(500)
    changed = state(page)
    assert changed != compared
    address = page.evaluate("location.hash")
    kept = "model=lenet5&cluster=titanx-4&batch=64&strategy=data&strategy=owt&price=2.5&set=link.slot.bandwidth"
    assert kept in address
    assert address.endswith("&compared=none&shown=data")

    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert state(page) == changed
    second = opened(browser, server, page.url)
    assert state(second) == changed
    jobs = [url.rsplit("/", 2)[1] for url in page.asked + second.asked if url.endswith("/events")]
    assert len(jobs) - len(set(jobs)) >= 4  # two pages took the results of a comparison, and of the change
    second.close()

    for _ in range(3):  # the choice of a strategy, the price, and the change
        page.go_back()
        page.wait_for_timeout(500)
    until(page, "$('changes').innerText.trim() === 'none'")
    assert state(page)[:-2] == compared[:-2]  # the links that were picked stay so
    for _ in range(3):
        page.go_forward()
        page.wait_for_timeout(500)
    until(page, "document.body.dataset.chosen === 'data'")
    assert state(page) == changed
    assert page.problems == []
    page.close()


REFUSED = {
    "model=lenet6&cluster=titanx-4&batch=64&strategy=data": "model must be one of the catalogue",
    "model=lenet5&cluster=titanx-4&batch=-1&strategy=data": "batch",
    "model=upload:gone&cluster=titanx-4&batch=64&strategy=data": "model upload:gone is not here any more",
    "model=lenet5&cluster=titanx-4&batch=64&strategy=../x": "strategy must be a name",
    "model=lenet5&cluster=titanx-4&batch=64&strategy=data&set=link": "set must look like",
    "model=lenet5&cluster=titanx-4&batch=64&strategy=data&set=link.none.bandwidth_factor=2": "class of links",
    "model=lenet5&cluster=titanx-4&batch=64&strategy=data&compared=a.b=1": "change must look like",
    "model=lenet5&cluster=titanx-4&batch=64&batch=65&strategy=data": "batch must stand in it once",
    "model=lenet5&cluster=titanx-4&batch=64&strategy=data&price=-1": "price must be a number > 0",
    "model=lenet5&%3Cscript%3E=1": "its parts must be",
    "model=%FF%00": "cluster: missing",
    "x" * 70_000: "at most 65,536 characters",
}


def test_an_address_that_cannot_be_shown_is_told_why(browser, server):
    """In one sentence, and the page works on: where it is opened there, and where the address changes."""
    page = opened(browser, server, f"{server.address}#{next(iter(REFUSED))}")
    for words, message in REFUSED.items():
        page.evaluate("(words) => { location.hash = words; }", words)
        until(page, f"!$('problem').hidden && $('problem').innerText.includes('{message}')")
        assert "\n" not in page.inner_text("#problem")
    until(page, "document.querySelectorAll('#machine .device').length > 0")
    compare_small(page)
    page.close()


def test_the_order_of_changes_does_not_matter(browser, server):
    """Ten quick changes and their taking back leave what was compared."""
    page = opened(browser, server)
    compare_small(page)
    first = times(page)
    page.evaluate("""() => { for (const to of [-10, -20, -30, 5, -50, -70, 20, -40, -15, -60]) {
        const r = $("bandwidth"); r.value = to; r.dispatchEvent(new Event("input", {bubbles: true})); } }""")
    page.click("#reset")
    settled(
        page, "document.body.dataset.repriced === document.body.dataset.wanted && !$('changes').querySelector('button')"
    )
    assert times(page) == first
    assert page.problems == []
    page.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_clipped_and_the_accessibility_linter_finds_nothing(browser, server, width):
    """All rules in the light theme; in the dark one those about colours, as nothing else changes."""
    page = opened(browser, server, viewport={"width": width, "height": 860})
    compare_small(page)
    for name in ("one", "another"):
        page.fill("#scenario-name", f"{name} at {width} px")
        page.click("#keep-button")
    until(page, "$('left').options.length >= 2")
    page.click("#pair button")
    page.wait_for_selector("#side-figure .main-svg")
    page.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.evaluate(AXE)
    for scheme, rules in (("light", None), ("dark", ["color-contrast"])):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate(CLIPPED) == []
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(FINDINGS, rules) == []
    assert page.problems == []
    page.close()


def test_the_keyboard_does_what_the_mouse_does(browser, server):
    """Compare by Enter, move a slider by arrows, and keep by Enter."""
    page = opened(browser, server)
    page.select_option("#model", "lenet5")
    page.select_option("#cluster", "titanx-4")
    until(page, "document.querySelectorAll('#machine .device').length === 4")
    page.locator("#strategies input[value=layerwise]").uncheck()
    page.focus("#batch")
    page.keyboard.press("Enter")
    settled(page, "document.body.dataset.compared && document.body.dataset.chosen")
    page.focus("#speed")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    settled(page, "document.body.dataset.repriced === document.body.dataset.wanted")
    assert page.locator("#changes li").first.inner_text().startswith("device.node0/gpu0.speed = 0.9")
    page.focus("#scenario-name")
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=by keyboard")
    assert page.problems == []
    page.close()


def test_what_is_refused_is_said_on_the_page(browser, server, tmp_path):
    """A file that is no cluster, an unknown change, a cluster without its last device."""
    page = opened(browser, server)
    bad = tmp_path / "bad.yaml"
    bad.write_text("version: 1\nname: bad\nlinks: [\n")
    page.set_input_files("#cluster-upload", bad)
    page.wait_for_selector("#problem:not([hidden])")
    assert "is not YAML or is cut off" in page.inner_text("#problem")
    good = tmp_path / "my own.yaml"
    good.write_text(Path("hwprofiles/clusters/titanx-4.yaml").read_text())
    page.set_input_files("#cluster-upload", good)
    until(page, "$('cluster').value === 'upload:my-own'")
    until(page, "document.querySelectorAll('#machine .device').length === 4")
    page.fill("#change", "link.none.bandwidth_factor=2")
    page.click("#add-change")
    page.wait_for_selector("#problem:not([hidden])")
    assert "must name a class of links" in page.inner_text("#problem")
    assert page.inner_text("#changes") == "none"
    page.fill("#change", "link.slot.bandwidth_factor=0.5")
    page.click("#add-change")
    until(page, "$('changes').textContent.includes('bandwidth_factor')")
    page.select_option("#link", "slot")
    listed = page.locator("#link option:checked").inner_text()  # all 8 slot, 6.05 GB/s
    assert listed.endswith(f" {page.input_value('#bandwidth-number')} GB/s"), "the box says what the list says"
    page.fill("#bandwidth-number", "3")
    assert "bandwidth_factor" not in page.inner_text("#changes"), "a number replaces a factor"
    page.close()


def test_of_many_equal_machines_one_is_drawn_and_a_change_sets_it_apart(browser, server):
    """96 GPUs on a phone, by fingers: a tap picks a class of links or a device; the print is whole."""
    page = opened(browser, server, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.select_option("#cluster", "fdr-32x3")
    until(page, "$('cluster-title').textContent.includes('96 devices')")
    assert page.locator("#machine .device").count() == 3
    assert "node0 and 31 alike" in page.locator("#machine .title").all_text_contents()
    page.locator("#machine .hit[data-link*='gpu1']").first.dispatch_event("click")
    chosen = page.input_value("#link")
    page.evaluate("$('bandwidth-number').value = 3; $('bandwidth-number').dispatchEvent(new Event('input'))")
    titles = page.locator("#machine .hit title").all_text_contents()
    assert page.locator("#machine .link.changed").count() == sum(each.endswith(f"({chosen})") for each in titles) > 0
    assert any("and 31 alike" in each for each in titles)
    page.locator("#machine").scroll_into_view_if_needed()
    page.locator("#machine .device").nth(2).tap()
    assert page.input_value("#device") == "node0/gpu2"
    page.fill("#speed-number", "0.5")
    page.dispatch_event("#speed-number", "change")
    until(page, "document.querySelectorAll('#machine .device').length === 6")
    assert {"node0", "node1 and 30 alike"} <= set(page.locator("#machine .title").all_text_contents())
    assert page.locator("#machine .device.changed").count() == 1
    page.emulate_media(media="print")
    assert page.evaluate(CLIPPED) == []
    assert page.problems == []
    page.close()
