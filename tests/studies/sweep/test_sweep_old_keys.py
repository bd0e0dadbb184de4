"""Sweep files, stores and conditions with the old name of a key are still read, with one warning for each."""

import sqlite3

import pytest

from hwprofiles.errors import ConfigError
from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from studies.sweep.evaluate_point import PointResult
from studies.sweep.point import SweepPoint
from studies.sweep.store import Store
from studies.sweep.stored_results import result_table
from studies.sweep.sweep_file import read_sweep

WARNING = "is now called gradient_sync; the old name works in this version only\n"
AXES = """
version: 1
name: small
models: lenet5
clusters: p100-4x4
batch: 64
strategies: [data, owt]
exchange: [ring, tree]
points:
  - {model: lenet5, cluster: p100-4x4, batch: 32, strategy: data, exchange: halving}
"""


def read(tmp_path, text):
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    return read_sweep(path)


def test_the_old_key_is_read_as_axis_and_in_points_with_one_warning(tmp_path, capsys):
    old = read(tmp_path, AXES)
    warned = capsys.readouterr()
    new = read(tmp_path, AXES.replace("exchange", "gradient_sync"))

    assert old == new
    assert [point.gradient_sync for point in old.points] == ["ring", "tree", "ring", "tree", "halving"]
    assert warned.err == f"orrery: exchange in sweep file {tmp_path / 'sweep.yaml'} {WARNING}"
    assert warned.out == ""
    assert capsys.readouterr().err == ""


def test_the_old_key_beside_the_new_one_is_unknown(tmp_path):
    with pytest.raises(ConfigError, match="exchange: unknown key, must be one of"):
        read(tmp_path, f"{AXES}gradient_sync: ring\n")


def test_constraints_may_name_the_old_column(tmp_path, capsys):
    rules = "constraints: [\"exchange == 'tree'\"]\n"
    swept = read(tmp_path, AXES.replace("exchange:", "gradient_sync:") + rules)

    assert [point.gradient_sync for point in swept.points] == ["tree", "tree"]
    assert capsys.readouterr().err == f"orrery: exchange in condition \"exchange == 'tree'\" {WARNING}"


@pytest.fixture
def old_store(tmp_path):
    """A store as the version before wrote it: its points have a field ``exchange``."""
    path = tmp_path / "old.sqlite"
    with Store.writing(path) as store:
        for scheme in ("ring", "tree"):
            point = SweepPoint(model="lenet5", cluster="p100-4x4", batch=64, strategy="data", gradient_sync=scheme)
            store.add(point, PointResult(status="ok", values={"iteration_s": 1.0}))
    with sqlite3.connect(path) as connection:
        connection.execute("update results set point = replace(point, '\"gradient_sync\"', '\"exchange\"')")
    connection.close()
    return path


def test_old_stores_are_read_and_copied(old_store, tmp_path, capsys):
    assert Store.copy(old_store, tmp_path / "new.sqlite") == 2
    for path in (old_store, tmp_path / "new.sqlite"):
        with Store.reading(path) as store:
            frame = store.to_frame()
        assert set(frame["gradient_sync"]) == {"ring", "tree"}
        assert "exchange" not in frame.columns
    assert capsys.readouterr().err == ""


def test_results_may_be_chosen_by_the_old_column(old_store, capsys):
    with Store.reading(old_store) as store:
        frame = store.to_frame()
    table = result_table(frame, where=["exchange != 'ring'"], sort="-exchange", columns="model,exchange")

    assert table.to_dict(orient="records") == [{"model": "lenet5", "gradient_sync": "tree"}]
    assert capsys.readouterr().err.count(WARNING) == 3
    with pytest.raises(ConfigError, match=r"sort must name one of .* got 'exchang'"):
        result_table(frame, sort="exchang")


def test_the_command_shows_an_old_store(old_store, capsys):
    assert run_app(app, ["results", str(old_store), "--columns", "model,gradient_sync", "--sort", "gradient_sync"]) == 0
    shown = capsys.readouterr().out

    assert shown.index("ring") < shown.index("tree")
