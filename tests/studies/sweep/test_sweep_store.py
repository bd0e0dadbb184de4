import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sweep_points import POINTS, plain

from groundwork.errors import ConfigError
from studies.sweep.evaluate_point import PointResult, evaluate_point
from studies.sweep.store import Store

OK = PointResult(status="ok", values={"iteration_s": 0.25, "devices": 4})


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "results.sqlite"
    with Store.writing(path) as store:
        for point in POINTS[:5]:
            store.add(point, OK)
        store.add(POINTS[5], PointResult(status="refused", error="too large"))
        store.add(POINTS[6], PointResult(status="failed", error="died"))
    return path


def test_what_was_added_is_there_again(path):
    with Store.reading(path) as store:
        rows = dict(store.rows())
        assert rows[POINTS[0]] == OK
        assert store.known([point.digest for point in POINTS]) == {point.digest for point in POINTS[:7]}
        frame = store.to_frame().set_index("status")
    assert frame.loc["ok", "iteration_s"].tolist() == [0.25] * 5
    assert frame.loc["refused", "error"] == "too large"
    assert set(frame["nodes"]) == {1}


def test_nothing_is_stored_twice(path):
    with pytest.raises(ConfigError, match="UNIQUE"), Store.writing(path) as store:
        store.add(POINTS[0], OK)


def test_failed_points_are_forgotten_on_request(path):
    with Store.writing(path) as store:
        assert store.failed() == {POINTS[6].digest}
        store.forget(store.failed())
        assert not store.failed()
        assert len(dict(store.rows())) == 6


def test_one_writer_at_a_time_and_readers_beside_it(path):
    with Store.writing(path), Store.reading(path) as reader:
        assert len(reader.to_frame()) == 7
        with pytest.raises(ConfigError, match=r"locked by another process: a sweep adds to it"), Store.writing(path):
            pass


def test_a_database_locked_from_outside_is_said_to_be_so(path, monkeypatch):
    monkeypatch.setattr("studies.sweep.store.WAIT_S", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    with (
        pytest.raises(ConfigError, match=r"locked by another process \(waited 0.05 s\)"),
        Store.writing(path) as store,
    ):
        store.add(POINTS[9], OK)
    other.close()


def test_another_version_is_refused_with_its_number_and_can_be_copied(path, tmp_path):
    connection = sqlite3.connect(path)
    connection.execute("pragma user_version = 7")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"has version 7, this program reads 1; .*--copy NEW"), Store.writing(path):
        pass
    assert Store.copy(path, tmp_path / "new.sqlite") == 7
    with Store.reading(tmp_path / "new.sqlite") as store:
        assert dict(store.rows())[POINTS[0]] == OK
    assert path.read_bytes() == before
    with pytest.raises(ConfigError, match="copy must be a new file"):
        Store.copy(path, tmp_path / "new.sqlite")


def test_a_damaged_store_stays_as_it_is_and_gives_what_can_be_read(tmp_path):
    path = tmp_path / "results.sqlite"
    long = PointResult(status="refused", error="x" * 3000)  # a page a row
    with Store.writing(path) as store:
        for point in POINTS:
            store.add(point, long)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = b"\xa5" * 4096
    path.write_bytes(content)
    for opened in (Store.reading, Store.writing):
        with pytest.raises(ConfigError, match=r"is damaged .*--copy NEW copies what can be read"), opened(path):
            pass
    assert path.read_bytes() == bytes(content)
    kept = Store.copy(path, tmp_path / "new.sqlite")
    assert 0 < kept < len(POINTS)
    with Store.reading(tmp_path / "new.sqlite") as store:
        rows = list(store.rows())
    assert len(rows) == kept
    assert all(point in POINTS and result == long for point, result in rows)


@pytest.mark.parametrize(
    "content", [b"no database, but long enough to have a header" * 9, b"SQLite format 3\0" + b"\xff" * 90]
)
def test_what_is_no_database_is_refused(tmp_path, content):
    path = tmp_path / "results.sqlite"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="is damaged"), Store.writing(path):
        pass
    for store, rule in ((path, "has no result that can be read"), (tmp_path, "must be a regular file")):
        with pytest.raises(ConfigError, match=rule):
            Store.copy(store, tmp_path / "new" / "copy.sqlite")
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == content


def test_another_programs_database_is_refused(tmp_path):
    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("create table results (digest)")
    connection.commit()
    connection.close()
    with pytest.raises(ConfigError, match="another program's database"), Store.writing(path):
        pass


def test_reading_what_is_empty_says_so(tmp_path):
    (tmp_path / "r.sqlite").touch()
    with pytest.raises(ConfigError, match="has no results yet"), Store.reading(tmp_path / "r.sqlite"):
        pass


def test_reading_what_is_not_there_makes_nothing(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"), Store.reading(tmp_path / "none.sqlite"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_computed_result_survives_the_store(tmp_path):
    with Store.writing(tmp_path / "r.sqlite") as store:
        results = {point: evaluate_point(point) for point in POINTS[:3]}
        for point, result in results.items():
            store.add(point, result)
        assert {point: plain(result) for point, result in store.rows()} == {p: plain(r) for p, r in results.items()}


@pytest.mark.parametrize("results", [0, 1])
def test_an_error_leaves_no_store_without_results(tmp_path, results):
    """What was stored stays; a store that was there before stays too."""
    path = tmp_path / "new.sqlite"

    def broken_off():
        with Store.writing(path) as store:
            for point in POINTS[:results]:
                store.add(point, OK)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert [file.name for file in tmp_path.iterdir()] == ["new.sqlite"] * results
    with Store.writing(path) as store:
        assert len(dict(store.rows())) == results
    with pytest.raises(KeyboardInterrupt), Store.writing(path):
        raise KeyboardInterrupt
    assert path.exists()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("point", "{"),
        ("point", '{"model": 1}'),
        ("point", None),
        ("result", "[" * 100_000),
        ("result", '{"status": "ok", "values": {"iteration_s": "fast"}}'),
        ("result", '{"status": "refused", "error": "\\u001b[2J"}'),
        ("result", "9" * 5_000),
        ("result", b"\xff\xfe"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_and_the_others_can_be_copied(path, tmp_path, column, value):
    """A row is data from the wild: it may be damaged while the database is whole."""
    database = sqlite3.connect(path)
    with database:
        database.execute("create table free (digest, point, status, result, stored_at)")
        database.execute("insert into free select * from results")
        version = database.execute("pragma user_version").fetchone()[0]
        database.execute("drop table results")
        database.execute("alter table free rename to results")
        database.execute(f"update results set {column} = ? where digest = ?", (value, POINTS[0].digest))
    database.close()
    assert version == 1

    with pytest.raises(ConfigError, match=f"is damaged .*{POINTS[0].digest}.*--copy NEW"), Store.reading(path) as store:
        store.to_frame()
    assert Store.copy(path, tmp_path / "copy.sqlite") == 6


@pytest.mark.parametrize("opened", [Store.writing, Store.reading])
def test_a_store_is_a_regular_file(tmp_path, opened, null_device):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, null_device):
        with pytest.raises(ConfigError, match=r"store .*(regular file|Is a directory)"), opened(path):
            pass


@pytest.mark.skipif(not Path("/dev/full").exists() or os.geteuid() != 0, reason="mounts a file system of 64 KiB")
def test_a_full_disk_is_said_to_be_full(tmp_path):
    """In a namespace of its own, with a disk of 64 KiB; what was stored stays."""
    script = """
import sys
from pathlib import Path
from groundwork.errors import ConfigError
from studies.sweep.store import Store
from studies.sweep.evaluate_point import PointResult
from studies.sweep.point import SweepPoint
try:
    with Store.writing(Path(sys.argv[1])) as store:
        for batch in range(1, 2000):
            store.add(SweepPoint(model="lenet5", cluster="titanx-4", batch=batch, strategy="data"),
                      PointResult(status="refused", error="x" * 500))
except ConfigError as error:
    print(error)
"""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = f"mount -t tmpfs -o size=256k none {disk} && exec {sys.executable} -c '{script}' {disk}/r.sqlite"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", mounted], capture_output=True, text=True, timeout=60)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("no namespaces here")
    assert done.stdout.count("\n") == 1, done.stderr
    assert "cannot be used: " in done.stdout


def test_a_description_that_is_no_text_is_damage(path, tmp_path):
    """SQLite puts the names of columns into its messages."""
    content = path.read_bytes()
    assert content.count(b"stored_at text") == 1
    path.write_bytes(content.replace(b"stored_at text", b"\xd8tored_at text"))
    with pytest.raises(ConfigError, match=r"store .*(is damaged|has no result)"):
        Store.copy(path, tmp_path / "copy.sqlite")
