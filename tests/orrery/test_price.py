"""Money where a price is known: one option of several commands, the same closed form, and not a word without it."""

import json

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from planner.plan.training_rates import TrainingRates
from studies.sweep.evaluate_point import evaluate_point
from studies.sweep.point import SweepPoint
from studies.sweep.store import Store

ON = ["lenet5", "--cluster", "p100-4x4:nodes=1", "--batch", "64"]


def said(capsys, *words):
    """What a command prints."""
    assert run_app(app, [*words]) == 0
    return capsys.readouterr().out


def money(values, devices=4, price=1.5):
    """Money for a million samples by definition: hours of all devices, at the rate of the samples."""
    return price * devices * 1e6 / values["samples_per_s"] / 3600


def test_tokens_cost_what_their_samples_cost():
    rates = TrainingRates(
        samples_per_s=8.0, tokens_per_s=8192.0, mfu=0.5, hfu=None, device_hours_per_million_samples=3.0
    ).priced(2.0)
    assert (rates.money_per_million_samples, rates.money_per_million_tokens) == (6.0, 6.0 / 1024)
    assert rates.priced(None) is rates


def test_a_plan_its_replay_and_a_comparison_cost_the_same(capsys, tmp_path):
    plan = str(tmp_path / "plan.json")
    request = ["plan", *ON, "--strategy", "data", "--out", plan]
    values = [json.loads(said(capsys, *request, "--price", "1.5", "--json"))]
    values.append(json.loads(said(capsys, "simulate", plan, "--price", "p100-4x4:nodes=1=1.5", "--json")))
    compare = ["compare", *ON, "--strategies", "data", "--out", str(tmp_path)]
    values.append(json.loads(said(capsys, *compare, "--price", "1.5", "--json"))["strategies"][0])
    page = (tmp_path / "index.html").read_text()
    for each in values:
        assert each["money_per_million_samples"] == pytest.approx(money(each))
        assert each["money_per_million_tokens"] is None
    shown = f"{values[0]['money_per_million_samples']:.3g}"
    assert f"costs {shown} a million images." in said(capsys, *request, "--price", "1.5").splitlines()[0]
    assert page.count("money per million images") >= 2  # a tile and a column
    assert shown in page
    assert "money" not in said(capsys, *request) + said(capsys, "simulate", plan) + said(capsys, *compare)
    assert "money" not in (tmp_path / "index.html").read_text().partition("<main")[2].partition("<script")[0]


def test_results_of_a_sweep_cost_what_their_clusters_do(capsys, tmp_path):
    store, page, price = str(tmp_path / "s.sqlite"), tmp_path / "page.html", {"p100-4x4": 1.5, "titanx-4": 0.3}
    with Store.writing(tmp_path / "s.sqlite") as opened:
        for cluster in price:
            point = SweepPoint(model="lenet5", cluster=cluster, batch=64, strategy="data")
            opened.add(point, evaluate_point(point))
    words = ["results", store, "--price", "titanx-4=0.3", "--price", "1.5", "--sort", "-money_per_million_samples"]
    rows = json.loads(said(capsys, *words, "--out", str(page), "--json"))["rows"]
    for row in rows:
        assert row["money_per_million_samples"] == pytest.approx(money(row, row["devices"], price[row["cluster"]]))
    assert rows[0]["money_per_million_samples"] > rows[1]["money_per_million_samples"]
    assert "money_per_million_samples" in page.read_text()
    assert "money" not in said(capsys, "results", store)


@pytest.mark.parametrize("price", ["0", "-1", "nan", "much", "dgx-a100=2"])
def test_prices_that_are_none_are_refused_in_one_line(capsys, tmp_path, price):
    assert run_app(app, ["plan", *ON, "--price", price, "--out", str(tmp_path / "p.json")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "price must be" in error
    assert not (tmp_path / "p.json").exists()
