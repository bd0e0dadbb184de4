"""``orrery chakra``: traces left in a folder are not taken for ranks, and ranks are taken by their numbers."""

import json

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from simulator.formats.chakra import ChakraNode, write_chakra


def orrery(*arguments):
    return run_app(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """A plan for four devices."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    assert orrery("plan", "lenet5", "--cluster", "titanx-4", "--batch", 64, "--strategy", "data", "--out", path) == 0
    return path


@pytest.mark.parametrize("stale", ["trace.4.et", "trace.10.et", "trace.00.et"])
def test_writing_beside_traces_of_further_ranks_is_refused(tmp_path, plan, capsys, stale):
    (tmp_path / stale).write_text("stale")
    (tmp_path / "trace.0.et").write_text("old")
    capsys.readouterr()
    assert orrery("chakra", "write", plan, "--out", tmp_path) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert f"{stale}'" in lines[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({stale, "trace.0.et"})
    assert (tmp_path / "trace.0.et").read_text() == "old"


def test_traces_are_replaced_and_other_files_left(tmp_path, plan):
    names = ["trace.0.et", "trace.3.et", "trace.x.et", "trace.4.et.txt", "my.trace.9.et"]
    for name in names:
        (tmp_path / name).write_text("old")
    assert orrery("chakra", "write", plan, "--out", tmp_path) == 0
    assert (tmp_path / "trace.3.et").read_bytes() != b"old"
    assert {path.name for path in tmp_path.iterdir()} == {*names, *(f"trace.{rank}.et" for rank in range(4))}


@pytest.mark.parametrize(
    ("pattern", "order"), [("trace.{}.et", range(12)), ("rank{}.et", (0, 1, 10, 11, *range(2, 10)))]
)
def test_traces_are_read_by_the_numbers_in_their_names(tmp_path, capsys, pattern, order):
    """A shell lists trace.10.et before trace.2.et; files with other names are taken as they are given."""
    for rank in range(12):
        node = ChakraNode(id=1, name=f"work {rank}", type="compute", duration_us=rank + 1)
        write_chakra(tmp_path / pattern.format(rank), [node])
    listed = sorted(tmp_path.iterdir(), key=lambda path: path.name)
    graph = tmp_path / "graph.json"
    assert orrery("chakra", "read", *listed, "--cluster", "dgx-a100:nodes=2", "--out", graph, "--json") == 0
    assert json.loads(capsys.readouterr().out)["ranks"] == 12
    content = graph.read_text()
    places = [content.index(f'"work {rank}"') for rank in order]
    assert places == sorted(places)
