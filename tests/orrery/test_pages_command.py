"""``orrery timeline``, ``show`` and ``index`` write whole pages or nothing."""

import json

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    assert (
        run_app(
            app, ["plan", "lenet5", "--cluster", "titanx-4", "--batch", "64", "--strategy", "owt", "--out", str(path)]
        )
        == 0
    )
    return path


def test_timeline_show_and_index_say_the_same(plan, tmp_path, capsys):
    assert run_app(app, ["timeline", str(plan), "--out", str(tmp_path / "t" / "timeline.html"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["size_bytes"] == (tmp_path / "t" / "timeline.html").stat().st_size
    assert run_app(app, ["show", str(plan), "--out", str(tmp_path / "s"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["headline"] == said["headline"]
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["index.html", "timeline.html"]
    assert run_app(app, ["index", str(tmp_path), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {row["file"]: row["headline"] for row in listed["results"]} == dict.fromkeys(
        ("t/timeline.html", "s/index.html", "s/timeline.html"), said["headline"]
    )
    assert listed["page"] == str(tmp_path / "index.html")
    assert (tmp_path / "index.html").is_file()
    assert run_app(app, ["index", str(tmp_path)]) == 0  # an index is written anew
    capsys.readouterr()
    assert run_app(app, ["index", str(tmp_path / "s")]) == 2
    assert "--out" in capsys.readouterr().err
    assert "orrery-page" in (tmp_path / "s" / "index.html").read_text()[:2000]


def test_one_of_many_replicas_is_drawn(tmp_path, capsys):
    plan, cluster = str(tmp_path / "plan.json"), ["--cluster", "dgx-h100:nodes=16"]
    words = ["plan", "lenet5", *cluster, "--batch", "1024", "--strategy", "data", "--out", plan]
    assert run_app(app, words) == 0
    assert run_app(app, ["show", plan, "--out", str(tmp_path / "s")]) == 0
    capsys.readouterr()
    for page in ("index.html", "timeline.html"):
        assert "one of 128 replicas that do the same is drawn" in (tmp_path / "s" / page).read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["timeline", "PLAN", "--measured", "PLAN", "--out", "OUT"], "is damaged, or no file of arrays"),
        (["show", "missing.json", "--out", "OUT"], "missing.json"),
        (["index", "missing"], "index needs a folder"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(plan, tmp_path, capsys, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    places = {"PLAN": str(plan), "OUT": str(tmp_path / "out")}
    assert run_app(app, [places.get(word, word) for word in words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
