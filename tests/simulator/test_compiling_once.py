"""Of processes that need the compiled engine at once, one compiles it and the others wait for it."""

import os
import threading
from pathlib import Path

import pytest

from simulator.engines import compiled_engine

fcntl = pytest.importorskip("fcntl")


@pytest.fixture
def locked(tmp_path, monkeypatch):
    """The lock of a folder of compiled code, held as another process would."""
    monkeypatch.setattr(compiled_engine.replay_kernel, "compiled", Dispatcher(tmp_path))
    with Path(tmp_path, "replay.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


class Dispatcher:
    """Has only the folder of its code."""

    def __init__(self, folder):
        self.stats = self
        self.signatures = []
        self.cache_path = str(folder)


def entered(wait_s):
    """A thread that compiles when it may, and what tells that it does."""
    inside = threading.Event()

    def compile_alone():
        with compiled_engine._alone(wait_s):
            inside.set()

    thread = threading.Thread(target=compile_alone, daemon=True)
    thread.start()
    return thread, inside


def test_one_waits_for_another(locked):
    thread, inside = entered(60.0)
    assert not inside.wait(0.5)
    fcntl.flock(locked, fcntl.LOCK_UN)
    assert inside.wait(30)
    thread.join(30)


def test_one_that_takes_too_long_is_not_waited_for(locked):
    assert entered(0.2)[1].wait(30)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_was_forked_meanwhile_does_not_keep_the_lock(monkeypatch, tmp_path):
    """It has the locked file open for as long as it lives."""
    monkeypatch.setattr(compiled_engine.replay_kernel, "compiled", Dispatcher(tmp_path))
    ends, end = os.pipe()
    with compiled_engine._alone():
        child = os.fork()
        if child == 0:
            os.close(end)
            os.read(ends, 1)  # until the parent closes its end
            os._exit(0)
    try:
        assert entered(60.0)[1].wait(10)
    finally:
        os.close(end)
        os.waitpid(child, 0)
        os.close(ends)


def test_without_a_folder_each_compiles(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled_engine.replay_kernel, "compiled", Dispatcher(tmp_path / "missing"))
    assert entered(60.0)[1].wait(30)


def test_compiled_code_is_noted_once_it_is_on_disk(tmp_path, monkeypatch):
    """The note of other sources goes; without code, where a folder cannot be written, there is none."""
    monkeypatch.setattr(compiled_engine.replay_kernel, "compiled", Dispatcher(tmp_path))
    old = tmp_path / "replay-0-0.cached"
    old.touch()

    compiled_engine._mark_as_cached()
    assert not compiled_engine.is_cached()
    (tmp_path / "event_loop.replay-1.py311.nbi").touch()
    compiled_engine._mark_as_cached()

    assert compiled_engine.is_cached()
    assert not old.exists()
