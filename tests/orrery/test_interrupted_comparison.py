"""Ctrl-C in a comparison keeps the strategies that are finished."""

import json

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from planner.plan import compare_strategies

WORDS = "compare lenet5 --cluster titanx-4 --batch 64 --strategies data,owt,filter --out out"


@pytest.mark.parametrize("finished", [0, 2])
def test_what_is_finished_is_kept_and_shown(tmp_path, monkeypatch, capsys, finished):
    """With the results of a comparison of these strategies alone; without any, nothing is written."""
    monkeypatch.chdir(tmp_path)
    words = [*WORDS.split(), "--json"]
    assert run_app(app, [word.replace("data,owt,filter", "data,owt") for word in [*words[:-2], "whole", "--json"]]) == 0
    whole = json.loads(capsys.readouterr().out)
    price, left = compare_strategies.price_strategy, [None] * finished

    def interrupted(*arguments, **options):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return price(*arguments, **options)

    monkeypatch.setattr(compare_strategies, "price_strategy", interrupted)

    assert run_app(app, words) == 130
    printed = capsys.readouterr()
    assert printed.err == "orrery: interrupted\n"
    assert (tmp_path / "out").exists() == bool(finished)
    if finished:
        kept = json.loads((tmp_path / "out" / "comparison.json").read_text())
        assert kept == json.loads(printed.out)
        assert [(row["name"], row["ladder_s"]) for row in kept["strategies"]] == [
            (row["name"], row["ladder_s"]) for row in whole["strategies"]
        ]
        assert "Interrupted before filter was compared." in kept["notes"]
        assert (tmp_path / "out" / "index.html").exists()
