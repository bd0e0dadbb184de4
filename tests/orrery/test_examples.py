"""The example scripts and the tutorial notebook run, each in an empty folder."""

import json
import runpy
from pathlib import Path

import pytest
from notebooks import TUTORIAL, code_cells, outputs_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCRIPTS = sorted((DOCS / "examples").glob("*.py"))


def test_there_are_examples():
    assert len(SCRIPTS) >= 4


@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_runs_and_prints_its_answer(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()
    assert list(tmp_path.glob("*.html"))


def test_the_tutorial_has_the_outputs_that_running_it_gives(tmp_path, monkeypatch):
    """Its cells run in order and in one namespace; the pictures of its figures are there, and not compared."""
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(TUTORIAL.read_text())
    stored = [cell["outputs"] for cell in code_cells(notebook)]
    pictures = [output["data"].pop("image/png", None) for outputs in stored for output in outputs if "data" in output]

    made = json.loads(json.dumps(list(outputs_of(notebook))))

    assert notebook["nbformat"] == 4
    assert len(made) >= 5
    assert all(made)
    assert sum(map(bool, pictures)) == sum("plotly" in json.dumps(list(output)) for output in data_of(made)) > 0
    assert stored == made


def data_of(cells):
    """The contents of all outputs, by type."""
    return [output["data"] for outputs in cells for output in outputs if "data" in output]
