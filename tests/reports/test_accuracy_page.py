"""The page of a study of accuracies: every type on it, its curves drawn, nothing asked for."""

import numpy as np
import pytest
from browsing import needs_chromium, on_a_phone

from executor.accuracy.accuracy_request import AccuracyRequest
from executor.accuracy.accuracy_result import AccuracyResult, Training
from reports.pages.accuracy_page import accuracy_html
from reports.pages.page_template import write_page
from reports.tables.accuracy_tables import accuracy_headline, accuracy_table


@pytest.fixture(scope="module")
def found():
    question, random = AccuracyRequest(types=("dynamic-tree", "one-bit"), seeds=3, epochs=4), np.random.default_rng(0)
    trainings = []
    for case in question.cases():
        for seed in range(3):
            level = 0.5 if case.type == "one-bit" else 0.97
            accuracies = [0.1, 0.2, 0.3, level + 0.001 * seed + 0.0002 * random.random()]
            losses = [2.0, 1.0, 0.5, 0.1 + 0.01 * seed]
            trainings.append(Training(mode=case.mode, type=case.type, seed=seed, losses=losses, accuracies=accuracies))
    return AccuracyResult(request=question, trainings=trainings, trained=1000, tested=200)


def test_headline_table_and_page_name_what_is_told_apart(found):
    html = accuracy_html(found)

    assert "one-bit, data parallel, is worse than float32" in accuracy_headline(found)
    assert accuracy_headline(found) in html
    assert accuracy_table(found).row_count == 3 + 2
    assert html[html.index('<table id="rows">') :].count("<tr") == 1 + 3 + 2
    assert "Not used in model parallelism: one-bit" in html


@pytest.mark.browser
@needs_chromium
def test_a_browser_draws_it_and_its_controls_redraw_it(found, tmp_path):
    path = tmp_path / "accuracy.html"
    write_page(accuracy_html(found), path)
    with on_a_phone(path) as page:
        assert page.locator("#losses .scatterlayer .trace").count() == 2 * 3
        assert page.locator("#accuracies .scatterlayer .trace").count() == 3
        assert page.locator("#last .scatterlayer .point").count() == 3 * 3 + 3
        assert page.locator("#difference .scatterlayer .point").count() == 2
        page.locator("input[value=model] + span").click()
        assert page.locator("#accuracies .scatterlayer .trace").count() == 2
        page.locator("input[value=dynamic-tree] + span").click()
        assert page.locator("#accuracies .scatterlayer .trace").count() == 1
