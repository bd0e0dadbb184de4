"""Inception-v3 on 96 GPUs: size of its timeline page, time to the first picture, time of a zoom in headless Chromium.

Run: ``python tests/benchmarks/timeline_page.py [STRATEGY]``.  The bars: under 15 MB, 3 s and 200 ms, over 50,000 tasks.

Measured on two cores: at a load of 4, 0.7 s from opening to the first picture and 44 ms (median; at most 90 ms) from
a key to the zoomed picture; at a load of 8, 1.8 s, 102 ms and, once, 614 ms.
"""

import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from playwright.sync_api import sync_playwright

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.lowered_plan import cost_model_of, lower_plan
from planner.plan.make_plan import make_plan
from reports.drawings.plan_view import PlanView
from reports.pages.page_template import write_page
from reports.pages.timeline_page import timeline_html

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
ZOOM = """async key => {
  const begin = performance.now();
  document.getElementById("stage").dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame);
  return performance.now() - begin;
}"""
"""A key, and the time until the frame after the one that shows it."""
KEYS = ["+", "+", "+", "ArrowRight", "-", "-", "0", "+", "0"]


def main(strategy: str = "owt", rounds: int = 3) -> None:
    graph, cluster = load_model("inception-v3", batch=32 * 96), load_cluster("fdr-32x3")
    plan = make_plan(graph, cluster, strategy=strategy)
    program = lower_plan(plan, graph, cluster)
    costs = cost_model_of(plan.request, graph, cluster)
    view = PlanView(plan=plan, program=program, costs=costs, additive_s=plan.additive_s)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path, begin = Path(folder) / "timeline.html", perf_counter()
        write_page(timeline_html(view), path)
        written_s = perf_counter() - begin
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        first_s, zoom_ms = [], []
        for _ in range(rounds):
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            begin = perf_counter()
            page.goto(path.as_uri())
            page.wait_for_selector("body[data-ready]")
            page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            first_s.append(perf_counter() - begin)
            zoom_ms += [page.evaluate(ZOOM, key) for key in KEYS]
            shown = page.evaluate("[m.count, m.size, v.rows.length, Number(stage.dataset.drawn)]")
            page.close()
        browser.close()
        megabytes = path.stat().st_size / 1e6
    assert shown[:2] == [program.size, program.size], "the page has every task of the program"
    assert program.size > 50_000
    assert shown[3] == 1 + len(KEYS), "every key drew"
    print(f"inception-v3, {strategy}, fdr-32x3: {program.size:,} tasks, {shown[2]} rows; written in {written_s:.1f} s")
    print(f"{'':28}{'median':>10}{'worst':>10}{'bar':>8}")
    print(f"{'size [MB]':28}{megabytes:>10.2f}{megabytes:>10.2f}{15:>8}")
    print(f"{'first picture [s]':28}{statistics.median(first_s):>10.2f}{max(first_s):>10.2f}{3:>8}")
    print(f"{'zoom, to painted [ms]':28}{statistics.median(zoom_ms):>10.0f}{max(zoom_ms):>10.0f}{200:>8}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
