"""The page of decisions: ten questions, each with a command that is understood, and answers as they are printed."""

import re

import pytest
from decision_answers import PAGE, answer_lines, questions

from orrery.cli import app
from orrery.terminal.exit_codes import run_app

QUESTIONS = dict(questions(PAGE.read_text()))
QUICK = [command for command in QUESTIONS if "--node-mtbf" in command]


def test_ten_questions_have_answers_with_reasons_and_intervals():
    """The first line answers; memory is counted and has no interval."""
    assert len(QUESTIONS) == 10
    for command, lines in QUESTIONS.items():
        assert any("set the pace" in line or "sets the pace" in line for line in lines), command
        if "size batch" not in command:
            assert re.search(r"(80 % interval|likely) [\d+-]", lines[0]), command


@pytest.mark.parametrize("command", QUICK)
def test_answers_are_what_the_commands_print(command, capsys):
    """One of the ten, the quickest; ``python tests/orrery/decision_answers.py`` makes all anew.

    Expected times and intervals move a little whenever errors are recorded: hours are compared by their words.
    """
    assert run_app(app, command.split()[1:]) == 0
    printed, stored = (
        [re.sub(r"[\d.]+ h\b", "h", line) for line in lines]
        for lines in (answer_lines(capsys.readouterr().out), QUESTIONS[command])
    )
    assert printed == stored
