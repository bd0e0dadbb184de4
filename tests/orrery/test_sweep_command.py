import json

import pandas as pd
import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from studies.sweep.evaluate_point import PointResult
from studies.sweep.point import SweepPoint
from studies.sweep.store import Store

FILE = """
version: 1
name: little
models: lenet5
clusters: {cluster: p100-4x4, with: {nodes: 1}}
batch: [8, 7]
strategies: [data, model]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.yaml").write_text(FILE)
    return tmp_path


@pytest.fixture
def stored(folder):
    with Store.writing(folder / "r.sqlite") as store:
        for k, batch in enumerate((8, 16, 32)):
            point = SweepPoint(model="lenet5", cluster="p100-4x4:nodes=1", batch=batch, strategy="data")
            times = dict.fromkeys(("expected_s", "iteration_s"), 0.5 - 0.1 * k)
            store.add(point, PointResult(status="ok", values=times | {"samples_per_s": 10.0 * batch}))
    return folder


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("warm_workers")
def test_a_sweep_is_computed_once_and_its_refusals_kept(folder, capsys):
    for computed in (4, 0):
        assert run_app(app, ["sweep", "sweep.yaml", "--store", "out/r.sqlite", "--processes", "1", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["points"], said["computed"], said["stored"]) == (4, computed, 4 - computed)
    with Store.reading(folder / "out" / "r.sqlite") as store:
        statuses = {(point.batch, point.strategy): result.status for point, result in store.rows()}
    assert statuses == {(8, "data"): "ok", (8, "model"): "ok", (7, "data"): "refused", (7, "model"): "ok"}


def test_results_are_filtered_sorted_and_cut(stored, capsys):
    words = ["results", "r.sqlite", "--where", "batch > 8", "--sort", "-batch", "--columns", "batch,iteration_s"]
    assert run_app(app, [*words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows == [{"batch": 32, "iteration_s": pytest.approx(0.3)}, {"batch": 16, "iteration_s": pytest.approx(0.4)}]
    assert run_app(app, [*words, "--limit", "1"]) == 0
    out = capsys.readouterr().out
    assert "iteration [ms]" in out
    assert " 300 " in out
    assert "2 points, the first 1 shown" in out


def test_results_say_which_columns_are_left_out(stored, capsys):
    """Without a choice the columns that fit; files, JSON and a choice have what was asked for."""
    refused = SweepPoint(model="lenet5", cluster="p100-4x4:nodes=1", batch=7, strategy="data")
    with Store.writing(stored / "r.sqlite") as store:
        store.add(refused, PointResult(status="refused", error="batch must be a multiple"))
    assert run_app(app, ["results", "r.sqlite", "--out", "r.csv"]) == 0
    out = capsys.readouterr().out
    columns = set(pd.read_csv("r.csv").columns)
    assert f"1 of {len(columns)} columns left out, see --columns all: error" in out
    assert "1 refused: batch must be a multiple" in out
    assert run_app(app, ["results", "r.sqlite", "--columns", "all"]) == 0
    assert "left out" not in capsys.readouterr().out
    assert run_app(app, ["results", "r.sqlite", "--columns", "all", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["rows"][0]) == columns


def test_results_are_exported(stored, capsys):
    for name in ("r.csv", "r.parquet"):
        assert run_app(app, ["results", "r.sqlite", "--out", name]) == 0
    for frame in (pd.read_csv("r.csv"), pd.read_parquet("r.parquet")):
        assert sorted(frame["batch"]) == [8, 16, 32]
        assert frame["samples_per_s"].tolist() == (10.0 * frame["batch"]).tolist()


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (
            ["sweep", "none.yaml", "--store", "n.sqlite"],
            "none.yaml cannot be read: No such file or directory",
        ),
        (["sweep", "sweep.yaml", "--store", "n.sqlite", "--dask", "local:x"], "local:N with N >= 1, got 'local:x'"),
        (["results", "none.sqlite"], "store none.sqlite does not exist"),
        (["results", "r.sqlite", "--where", "bach > 8"], "where 'bach > 8' cannot be used"),
        (["results", "r.sqlite", "--sort", "iteration"], "sort must name one of"),
        (["results", "r.sqlite", "--columns", "batch,iteration_ms"], "did you mean 'iteration_s'?"),
        (["results", "r.sqlite", "--out", "r.txt"], "a file that ends in .html or .csv or .parquet, got 'r.txt'"),
        (["results", "r.sqlite", "--csv", "r.csv"], "No such option: --csv; did you mean '--out'?"),
        (["results", "r.sqlite", "--limit", "0"], "'--limit': must be greater than or equal to 1, got '0'"),
        (["results", "r.sqlite", "--copy", "r.sqlite"], "copy must be a new file"),
    ],
)
def test_bad_input_is_one_line(stored, capsys, words, rule):
    assert run_app(app, words) == 2
    error = capsys.readouterr().err
    assert rule in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in stored.iterdir()) == ["r.sqlite", "sweep.yaml"]


def test_results_become_a_page_of_the_rows_that_are_left(stored, capsys):
    assert run_app(app, ["results", "r.sqlite", "--where", "batch > 8", "--out", "page.html"]) == 0
    html = (stored / "page.html").read_text()
    assert "(2 points)." in html
    assert run_app(app, ["results", "r.sqlite", "--where", "batch > 99", "--out", "none.html"]) == 2
    assert "needs points" in capsys.readouterr().err
    assert not (stored / "none.html").exists()
