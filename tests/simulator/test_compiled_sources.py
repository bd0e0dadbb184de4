"""The compiled engine's code on disk is for the very sources at hand, though numba looks at one file of them only."""

import ast
import os
from pathlib import Path

from simulator.compiled import event_loop
from simulator.engines import compiled_engine
from simulator.engines.engine import prepare

ROOT = Path(compiled_engine.__file__).parents[2]


def imported(path):
    """The files of the simulator that a file imports from."""
    files = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("simulator."):
            files |= {ROOT.joinpath(*node.module.split(".")).with_suffix(".py")}
    return files


def test_every_file_that_the_replay_is_compiled_from_is_known():
    reached, new = set(), {Path(event_loop.__file__)}
    while new:
        reached |= new
        new = set().union(*(imported(path) for path in new)) - reached

    assert len(reached) > 6
    assert reached <= set(compiled_engine.COMPILED_FILES)


def test_another_file_is_another_replay(tmp_path):
    """The digest, which numba hashes with what the replay closes over, follows every byte of every file."""
    digests = {compiled_engine.digest(compiled_engine.COMPILED_FILES)}
    copies = [tmp_path / path.name for path in compiled_engine.COMPILED_FILES]
    for copy, path in zip(copies, compiled_engine.COMPILED_FILES, strict=True):
        copy.write_bytes(path.read_bytes())
    assert digests == {compiled_engine.digest(copies)}
    for copy in copies:
        copy.write_bytes(copy.read_bytes() + b"\n")
        digests.add(compiled_engine.digest(copies))

    assert len(digests) == 1 + len(copies)
    assert [cell.cell_contents for cell in compiled_engine.replay_kernel.plain.__closure__] == [
        compiled_engine.digest(compiled_engine.COMPILED_FILES)
    ]


def test_code_on_disk_is_known_whatever_the_dates_of_its_sources(monkeypatch):
    """Checking out the same sources again compiles nothing, and says nothing of it."""
    prepare("compiled")
    monkeypatch.setattr(compiled_engine.replay_kernel.compiled, "overloads", {})
    newest = max(compiled_engine.COMPILED_FILES, key=lambda path: path.stat().st_mtime)
    os.utime(newest if newest.name != "event_loop.py" else newest.with_name("heap.py"))

    assert compiled_engine.is_cached()
