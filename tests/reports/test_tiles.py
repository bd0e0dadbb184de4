"""Tiles and tables say the same as the headlines: expected times, one unit, tokens and utilisation where they are."""

import re
from dataclasses import replace

import pytest
from page_kinds import small_view

from planner.models.registry import load_model
from planner.plan.make_plan import simulated_plan
from reports.pages.decision_pages import size_html, whatif_html
from reports.pages.plan_page import plan_html
from studies.size.deadline import fewest_devices
from studies.size.sized_point import Subject
from studies.size.training import TrainingRun
from studies.whatif.scenarios import whatif


def tiles_of(html):
    """The tiles of a page: number and unit by label."""
    found = re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", html, re.DOTALL)
    return {label: re.sub(r"<[^>]*>|\s+", " ", text).split() for label, text in found}


def test_the_tiles_of_a_size_are_its_headline_and_its_row():
    """The iteration is the expected one, as the samples a second are; time is in the headline's unit."""
    subject = Subject(model="lenet5", batch=0, batch_per_device=64, strategies=("data",))
    run = TrainingRun(samples=60_000_000, epochs=10)
    answer = fewest_devices(subject, "fdr-32x3", run, within_s=4000.0, most_devices=9)
    page, best = size_html(answer), answer.best
    tiles = tiles_of(page)
    assert "iteration" not in tiles
    amount, unit = tiles["expected iteration"]
    factor = {"s": 1, "ms": 1e-3, "µs": 1e-6}[unit]
    assert float(amount) * factor == pytest.approx(best.point.expected_s, rel=5e-3)
    rate = float(tiles["samples/s"][0].replace(",", ""))
    assert best.point.batch / rate == pytest.approx(float(amount) * factor, rel=0.01)
    headline = re.search(r'id="answer">(.*?)</h1>', page, re.DOTALL)[1]
    assert f"take {' '.join(tiles['training'])} " in headline.replace("takes", "take")
    assert 360 <= best.cost.total_s < 3600  # said in hours by the headline: as seconds it was another number
    assert "the limit" in page
    assert "the limit" not in size_html(replace(answer, limit=None)), "offers without a deadline have none"


def test_a_plans_tiles_and_what_ifs_rows_have_the_rates_of_plans():
    view = small_view()
    tiles = tiles_of(plan_html(view))
    rates = simulated_plan(view.program.graph, view.program.cluster, strategy="owt").rates
    assert float(tiles["model FLOP utilisation (MFU)"][0]) == pytest.approx(100 * rates.mfu, abs=0.06)
    assert float(tiles["throughput"][0].replace(",", "")) == pytest.approx(rates.samples_per_s, rel=5e-3)
    assert "tokens" not in tiles
    result = whatif("lenet5", "p100-4x4:nodes=1", batch=64, strategies=("owt",), scenarios=())
    assert result.rows[0].mfu == pytest.approx(rates.mfu)
    page = whatif_html(result)
    assert ("MFU [%]" in page, "tokens/s" in page) == (True, False)


def test_sequences_have_tokens_on_every_page():
    graph = load_model("bert-base", batch=8)
    assert graph.tokens_per_sample
    view = small_view(model="bert-base")
    tokens = view.plan.batch * graph.tokens_per_sample / view.replay.expected_s
    amount, unit = tiles_of(plan_html(view))["tokens"]
    assert (float(amount.replace(",", "")), unit) == (pytest.approx(tokens, rel=5e-3), "tokens/s")
