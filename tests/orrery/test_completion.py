"""Completion in shells, asked for as their scripts do."""

import os
import subprocess

import pytest

from orrery.cli import app
from orrery.terminal.completion import COMPLETERS
from orrery.terminal.exit_codes import run_app
from planner.models.registry import model_names

ASKED = {
    "orrery plan vg": [name for name in model_names() if name.startswith("vg")],
    "orrery plan lenet5 --cluster fd": ["fdr-32x3"],
    "orrery plan lenet5 --clus": ["--cluster"],
    "orrery size deadl": ["deadline"],
    "orrery size offers lenet5 --cluster titanx-4 --cluster k80": ["k80-16"],
    "orrery compare lenet5 --strategies data,o": ["data,owt"],
}


@pytest.mark.parametrize("line", ASKED)
def test_bash_gets_what_continues_the_word(line, warm_programs):
    words = {"_ORRERY_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    ended = subprocess.run(
        [warm_programs / "orrery"], env=os.environ | words, capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == ASKED[line]
    assert ended.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_ask_this_program(shell, capsys):
    """Each names the program and the variable by which it asks; other shells are refused."""
    assert run_app(app, ["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"complete_{shell}" in script
    assert "_ORRERY_COMPLETE" in script
    assert run_app(app, ["completion", "tcsh"]) == 2
    assert "got 'tcsh'" in capsys.readouterr().err


def test_lists_are_completed_behind_their_last_comma():
    assert COMPLETERS["strategies"]("data,lay") == ["data,layerwise"]
    assert COMPLETERS["cluster"]("nothing") == []
