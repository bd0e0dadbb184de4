"""``orrery whatif eight-bit``: one JSON value, a table with crossovers, a page, and one line for bad input."""

import json

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app

QUESTION = ["whatif", "eight-bit", "--cluster", "titanx-4", "--model", "lenet5", "--batch-per-device", "32"]
SMALL = ["--sub-batches", "1,2", "--types", "dynamic-tree", "--devices", "4", "--link-speeds", "0.01,1"]


def test_json_is_one_value(capsys):
    assert run_app(app, [*QUESTION, *SMALL, "--json"]) == 0
    printed = capsys.readouterr()

    values = json.loads(printed.out, parse_constant=pytest.fail)
    assert printed.out.count("\n") == 1
    assert printed.err == ""
    assert len(values["points"]) == 2 * 2 * 2
    assert values["types"] == ["float32", "dynamic-tree"]
    assert all(point["iteration_s"] > 0 for point in values["points"])


def test_a_table_crossovers_and_a_page(capsys, tmp_path):
    words = [*SMALL, "--sub-batches", "1,3", "--out", str(tmp_path / "w")]
    assert run_app(app, [*QUESTION, *words]) == 0
    printed = capsys.readouterr().out

    assert "lenet5 on titanx-4, 32 samples per device" in printed
    assert "dynamic-tree, 4 devices:" in printed
    assert "4 of 8 points left out: sub_batches must be >= 1 and divide the batch of 128, got 3" in printed
    assert (tmp_path / "w" / "index.html").stat().st_size > 400_000
    points = json.loads((tmp_path / "w" / "whatif.json").read_text())["points"]
    assert [point["iteration_s"] is None for point in points] == [bool(point["reason"]) for point in points]


BAD = {
    "no sub-batch divides": (["--sub-batches", "3,5"], "divide the batch of 128, got 3"),
    "sub-batches": (["--sub-batches", "0"], "sub_batches must be whole numbers >= 1, separated by commas, got '0'"),
    "type": (["--types", "dynamic-tre"], "did you mean 'dynamic-tree'"),
    "nothing to compare": (["--types", "float32"], "types must name a data type other than float32"),
    "devices": (["--devices", "8"], "devices must be at most the 4 of titanx-4"),
    "link speed": (["--link-speeds", "-1"], "link_speeds must be finite and > 0"),
    "link class": (["--link-class", "fdr"], "link_class must be one that 4 devices of titanx-4 use, slot, switch-port"),
    "word": (["--link-speeds", "fast"], "link_speeds must be numbers, separated by commas, got 'fast'"),
    "cluster": (["--cluster", "titanx-5"], "did you mean 'titanx-4'"),
    "compress": (["--compress", "all"], "got 'all'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_code_2(case, capsys, tmp_path):
    words, message = BAD[case]

    assert run_app(app, [*QUESTION, *SMALL, *words, "--out", str(tmp_path / "w")]) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "w").exists()


def test_an_unknown_strategy_is_refused_before_the_work(capsys):
    words = ["whatif", "lenet5", "--cluster", "titanx-4", "--batch", "64", "--strategies", "data,hybri"]
    assert run_app(app, words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "got 'hybri'; did you mean 'hybrid'?" in printed.err
    assert printed.err.count("\n") == 1


def test_a_model_is_asked_by_hand(capsys):
    words = ["whatif", "lenet5", "--cluster", "titanx-4", "--batch", "64", "--strategies", "data,spatial"]
    assert run_app(app, [*words, "--set", "link.slot.bandwidth_factor=0.5", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["scenario"] for row in rows] == ["today"] * 2 + ["link.slot.bandwidth_factor=0.5"] * 2
    assert run_app(app, [*words, "--set", "device.*.failed=1"]) == 2
    assert "must leave one of" in capsys.readouterr().err
    assert run_app(app, words) == 0
    printed = capsys.readouterr().out
    assert "at half speed" in printed
    assert "today, with faster hardware" in printed
    assert "no way round: node0/gpu2, node0/gpu3 are cut off, the other 2 go on" in printed
    assert "sets the pace" in printed
