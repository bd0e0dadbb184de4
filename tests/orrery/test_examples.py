"""The example scripts and the tutorial notebook run, each in an empty folder."""

import ast
import json
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCRIPTS = sorted((DOCS / "examples").glob("*.py"))


def test_there_are_examples():
    assert len(SCRIPTS) >= 4


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_runs_and_prints_its_answer(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()
    assert list(tmp_path.glob("*.html"))


def test_the_tutorial_runs_cell_by_cell(tmp_path, monkeypatch):
    """Plain Python without magics, so its cells run here as a kernel would run them, in order and in one namespace."""
    monkeypatch.chdir(tmp_path)
    notebook, names, shown = json.loads((DOCS / "tutorial.ipynb").read_text()), {"__name__": "tutorial"}, []
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        body = ast.parse(cell)
        last = body.body.pop() if isinstance(body.body[-1], ast.Expr) else None
        exec(compile(body, "tutorial", "exec"), names)
        if last:
            shown.append(eval(compile(ast.Expression(last.value), "tutorial", "eval"), names))
    assert len(cells) >= 5
    assert all(
        each is None or each is True or hasattr(each, "_repr_html_") or hasattr(each, "to_frame") for each in shown
    )


def test_the_tutorial_keeps_no_outputs():
    notebook = json.loads((DOCS / "tutorial.ipynb").read_text())
    assert notebook["nbformat"] == 4
    assert all(cell["outputs"] == [] for cell in notebook["cells"] if cell["cell_type"] == "code")
