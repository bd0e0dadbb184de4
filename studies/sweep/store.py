"""The store of a sweep: results in SQLite, each under the hash of everything that it depends on."""

import os
import sqlite3
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from groundwork.control_characters import check_texts
from groundwork.errors import ConfigError
from groundwork.input_files import AnyPath, check_input, path_of
from studies.sweep.evaluate_point import PointResult
from studies.sweep.point import SweepPoint, point_columns

_APPLICATION, VERSION = 0x4F525259, 1
WAIT_S = 5.0
"""Longest wait for another process that writes to the store."""
_NEW = f"""pragma application_id = {_APPLICATION}; pragma user_version = {VERSION};
create table results (
    digest text primary key, point text not null, status text not null, result text not null, stored_at text not null
) without rowid"""
_COLUMNS = "digest, point, status, result, stored_at"
_STORE_MIB = 65_536
_DAMAGED = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What SQLite raises on a damaged file, whose parts may stand in a message that is no text."""
_UNDECODABLE = (ConfigError, msgspec.MsgspecError, TypeError, ValueError, RecursionError)
"""What decoding a damaged row raises."""
_KEPT = 900
"""Hashes in one query; SQLite takes 999 variables everywhere."""


class Store:
    """Results by hash.

    Open a store with ``Store.writing`` or ``Store.reading``.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection

    @classmethod
    @contextmanager
    def writing(cls, given: AnyPath) -> Iterator["Store"]:
        """Open a store to add results; no other process can add results meanwhile.

        The store is created where there is none, and removed again where an error or Ctrl-C ends the block before its
        first result.

        Raises:
            ConfigError: Its name has control characters, or the file is in use, damaged, of another version, not a
                store, or cannot be written.
        """
        path = path_of(given, "store")
        check_texts([str(path)], "store")
        made = not path.exists()
        with _only_writer(path):
            try:
                with _opened(path, "rwc") as connection:
                    if not connection.execute("select 1 from sqlite_master").fetchone():
                        connection.execute("pragma journal_mode = wal")
                        connection.executescript(f"begin; {_NEW}; commit")
                    try:
                        yield cls(path, connection)
                    finally:
                        made = made and not connection.execute("select 1 from results limit 1").fetchone()
            except BaseException:
                if made:
                    path.unlink()
                raise

    @classmethod
    @contextmanager
    def reading(cls, given: AnyPath) -> Iterator["Store"]:
        """Open an existing store; a sweep may add results to it meanwhile.

        Raises:
            ConfigError: The file does not exist, or is empty, damaged, of another version, or not a store.
        """
        path = path_of(given, "store")
        if not path.exists():
            raise ConfigError(f"store {path} does not exist")
        check_input(path, "store", limit_mib=_STORE_MIB)
        with _opened(path, "rw") as connection:
            if not connection.execute("select 1 from sqlite_master").fetchone():
                raise ConfigError(f"store {path} has no results yet")
            yield cls(path, connection)

    def known(self, digests: Collection[str]) -> set[str]:
        """Return those of some hashes that have a result."""
        listed, stored = list(digests), set[str]()
        for first in range(0, len(listed), _KEPT):
            some = listed[first : first + _KEPT]
            marks = ",".join("?" * len(some))
            rows = self._connection.execute(f"select digest from results where digest in ({marks})", some)
            stored.update(row[0] for row in rows)
        return stored

    def add(self, point: SweepPoint, result: PointResult) -> None:
        """Store a result; it is on disk when this returns.

        Raises:
            ConfigError: Another process has locked the store.
        """
        row = (
            point.digest,
            msgspec.json.encode(asdict(point)).decode(),
            result.status,
            msgspec.json.encode(asdict(result)).decode(),
            datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self._connection.execute(f"insert into results ({_COLUMNS}) values (?, ?, ?, ?, ?)", row)

    def forget(self, digests: Collection[str]) -> None:
        """Remove results, so that they are computed again."""
        self._connection.executemany("delete from results where digest = ?", [(digest,) for digest in digests])

    def failed(self) -> set[str]:
        """Return the hashes of points whose computation broke off."""
        rows = self._connection.execute("select digest from results where status = 'failed'")
        return {row[0] for row in rows}

    def rows(self) -> Iterator[tuple[SweepPoint, PointResult]]:
        """Yield all points with their results, ordered by hash."""
        for digest, point, result in self._connection.execute(
            "select digest, point, result from results order by digest"
        ):
            try:
                yield _decoded(point, result)
            except _UNDECODABLE as error:
                reason = f"the result of {str(digest)[:40]!r} cannot be read: {' '.join(str(error).split())}"
                raise ConfigError(f"store {self.path} is damaged ({reason}); {_copy_hint(self.path)}") from None

    def to_frame(self) -> pd.DataFrame:
        """Return one row a point: its fields, its values (NaN where it has none), status and error.

        ``batch_per_device`` is there beside ``batch`` where a point has a result, as an axis to filter by and to draw.
        """
        records = [
            {**point_columns(point), **result.values, "status": result.status, "error": result.error}
            | {"seconds": result.seconds}
            for point, result in self.rows()
        ]
        frame = pd.DataFrame(records)
        if "devices" in frame:
            frame.insert(list(frame.columns).index("batch") + 1, "batch_per_device", frame["batch"] / frame["devices"])
        return frame

    @staticmethod
    def copy(damaged: AnyPath, new: AnyPath) -> int:
        """Copy the readable rows of a store, damaged or of another version, into a new one.

        Raises:
            ConfigError: ``new`` exists, or nothing can be read.
        """
        source, target = path_of(damaged, "store"), path_of(new, "copy")
        if target.exists():
            raise ConfigError(f"copy must be a new file, {target} exists")
        readable = _readable(source)
        if first := next(readable, None):  # nothing is made before there is something to copy
            with Store.writing(target) as store:
                if count := len({row[0] for row in chain([first], readable) if _keeps(store, row)}):
                    return count
            target.unlink()
        raise ConfigError(f"store {source} has no result that can be read")


def _decoded(point: str, result: str) -> tuple[SweepPoint, PointResult]:
    fields = msgspec.json.decode(point, type=dict[str, Any])
    if unknown := fields.keys() - SweepPoint.__dataclass_fields__.keys():
        raise ValueError(
            f"its point has the unknown fields {', '.join(sorted(unknown))}"
        )  # decoding would drop them without a word
    of_point = msgspec.convert(fields, SweepPoint)
    of_result = msgspec.json.decode(result, type=PointResult)
    check_texts((*map(str, asdict(of_point).values()), *of_result.values, of_result.error), "row")
    return of_point, of_result


def _keeps(store: Store, row: tuple[str, ...]) -> bool:
    """Put a row into a store, unless it cannot be decoded, and return whether it was put there."""
    try:
        _decoded(row[1], row[3])
    except _UNDECODABLE:
        return False
    store._connection.execute(f"insert or ignore into results ({_COLUMNS}) values (?, ?, ?, ?, ?)", row)
    return True


def _readable(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a store from the first, and from the last, up to the first that cannot be read."""
    check_input(path, "store", limit_mib=_STORE_MIB)
    with _explained(path):
        # SQLite would leave a log of its own beside a store that it may not write; where there is a log, it holds rows.
        unchanged = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro{unchanged}", uri=True, timeout=WAIT_S)
    try:
        for order in ("asc", "desc"):
            with suppress(*_DAMAGED):
                yield from connection.execute(f"select {_COLUMNS} from results order by digest {order}")
    finally:
        connection.close()


@contextmanager
def _only_writer(path: Path) -> Iterator[None]:
    """Lock the store against other sweeps; the system unlocks it when the process ends, however it ends."""
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY, 0o644)
    except OSError as error:
        raise ConfigError(f"store {path} cannot be written: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ConfigError(f"store {path} must be a regular file")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"store {path} is locked by another process: a sweep adds to it") from None
        yield
    finally:
        os.close(handle)  # after SQLite's handle, because closing any handle releases SQLite's locks on the file


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """Open and check a database."""
    with _explained(path):
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode={mode}", uri=True, timeout=WAIT_S, isolation_level=None
        )
        try:
            connection.execute("begin")  # a consistent view of a store that another process may just be creating
            _check(path, connection)
            connection.execute("rollback")
            yield connection
        finally:
            connection.close()


def _check(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a file that is damaged or not a store of this version."""
    marks = {name: connection.execute(f"pragma {name}").fetchone()[0] for name in ("application_id", "user_version")}
    if not connection.execute("select 1 from sqlite_master").fetchone():
        if marks != {"application_id": 0, "user_version": 0}:
            raise sqlite3.DatabaseError("it has no table")
        return  # a new store has neither mark yet
    if marks["application_id"] != _APPLICATION:
        raise ConfigError(f"store {path} is another program's database; name another file")
    if marks["user_version"] != VERSION:
        raise ConfigError(
            f"store {path} has version {marks['user_version']}, this program reads {VERSION}; {_copy_hint(path)}"
        )
    problem = connection.execute("pragma quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise sqlite3.DatabaseError(problem)


def _copy_hint(path: Path) -> str:
    return f"orrery results {path} --copy NEW copies what can be read, and leaves this file as it is"


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into messages for users of a store."""
    try:
        yield
    except _DAMAGED as error:
        name = getattr(error, "sqlite_errorname", "")
        reason = " ".join(str(error).split())
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise ConfigError(f"store {path} is locked by another process (waited {WAIT_S:g} s)") from None
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")):
            raise ConfigError(f"store {path} cannot be used: {reason}") from None
        raise ConfigError(f"store {path} is damaged ({reason}); {_copy_hint(path)}") from None
