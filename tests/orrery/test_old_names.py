"""Old names of options and fields work for one version."""

import json
from pathlib import Path

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from orrery.terminal.old_names import OLD_FIELDS, OLD_OPTIONS, with_new_options, with_old_fields
from orrery.terminal.output import to_json


@pytest.mark.parametrize("words", [["--exchange", "tree"], ["--exchange=tree"]], ids=["apart", "joined"])
def test_an_old_option_works_and_warns_once(words, tmp_path, capsys):
    plan = tmp_path / "plan.json"
    given = ["plan", "lenet5", "--cluster", "titanx-4", "--batch", "8", "--strategy", "data", "--out", str(plan)]
    assert run_app(app, [*given, *words, "--exchange-order", "end", "--exchange=ps"]) == 0

    assert capsys.readouterr().err.splitlines() == [
        "orrery: --exchange is now called --gradient-sync; the old name works in this version only",
        "orrery: --exchange-order is now called --gradient-sync-order; the old name works in this version only",
    ]
    assert json.loads(plan.read_text())["gradient_sync"] == "ps"


def test_new_options_warn_of_nothing(capsys):
    words = ["plan", "exchange", "--gradient-sync", "ring", "--out", "--", "--exchange"]
    assert with_new_options(words) == words
    assert capsys.readouterr().err == ""


def test_help_does_not_show_old_options(capsys):
    for command in ("plan", "compare", "validate", "streams", "whatif"):
        words = [command, "model"] if command == "whatif" else [command]
        assert run_app(app, [*words, "--help"]) == 0
        said = capsys.readouterr().out
        assert "--gradient-sync" in said
        assert not any(f"{old} " in said for old in OLD_OPTIONS)


def test_json_has_renamed_fields_by_both_names():
    rows = [{"gradient_sync_s": 0.5, "kept": [1.0, 2.0]}, {"gradient_sync": "ring"}]
    plain = {"rows": rows, "micro_batching": {"parts": 2, "gradient_syncs": {}}, "none": None, "empty": []}
    assert json.loads(to_json(plain)) == with_old_fields(plain)
    assert with_old_fields(plain) == {
        "rows": [{"exchange_s": 0.5, "gradient_exchange_s": 0.5, **rows[0]}, {"exchange": "ring", **rows[1]}],
        "micro_batching": {"parts": 2, "gradient_syncs": {}, "exchanges": {}},
        "cut": {"parts": 2, "gradient_syncs": {}, "exchanges": {}},
        "none": None,
        "empty": [],
    }


def test_every_old_name_is_in_the_changelog():
    said = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
    options = {name for pair in OLD_OPTIONS.items() for name in pair}
    fields = {name for new, names in OLD_FIELDS.items() for name in (new, *names)}
    missing = [name for name in sorted(options | fields) if f"`{name}`" not in said]
    assert missing == []
