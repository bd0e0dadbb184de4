"""``orrery size``: answers first, JSON, a page, and one line for bad input."""

import json
import re

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app

SUBJECT = ["lenet5", "--cluster", "fdr-32x3", "--batch-per-device", "64"]
RUN = ["--dataset", "60000", "--epochs", "10"]
SHORT = [*RUN, "--most-devices", "9"]
COMMANDS = {
    "deadline": ["deadline", *SUBJECT, *SHORT, "--within", "5s"],
    "batch": ["batch", "lenet5", "--cluster", "titanx-4:device.*.memory_gib=0.02"],
    "budget": ["budget", *SUBJECT, *SHORT, "--device-hours", "0.005"],
    "cheapest": ["budget", *SUBJECT, *SHORT, "--money", "5", "--price", "2", "--within", "1h"],
    "network": ["network", "lenet5", "--cluster", "fdr-32x3:nodes=2", "--link", "fdr", "--loss", "10"],
    "offers": ["offers", "lenet5", "--cluster", "titanx-4", "--cluster", "p100-4x4:nodes=1", *RUN, "--node-mtbf", "1d"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_answer_comes_first_with_reason_and_interval(name, capsys, tmp_path):
    """The first line is the headline of the JSON; why, what is left, and the page follow."""
    folder = tmp_path / "page"
    assert run_app(app, ["size", *COMMANDS[name], "--out", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    values = json.loads((folder / "size.json").read_text())
    assert lines[0] == values["headline"]
    assert any(line.startswith("why: ") and "set" in line for line in lines)
    assert any(line.startswith("time left: ") for line in lines)
    assert values["best"] is not None
    if name != "batch":
        assert "80 % interval" in lines[0]
    page = (folder / "index.html").read_text()
    assert "<td" in page
    assert values["question"] in page.replace("&#39;", "'")
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page)
    assert not [cell for cell in cells if re.search(r"\d (h|min|s|ms|GiB|%|device hours)\b", cell)]  # heads have units


def test_json_is_one_value(capsys):
    assert run_app(app, ["size", *COMMANDS["deadline"], "--json"]) == 0
    printed = capsys.readouterr()
    values = json.loads(printed.out, parse_constant=pytest.fail)
    assert printed.out.count("\n") == 1
    assert [row["devices"] for row in values["curve"]] == sorted(row["devices"] for row in values["curve"])


BAD = {
    "duration": (["deadline", *SUBJECT, "--within", "soon"], "must be a number > 0 with a unit"),
    "batches": (["deadline", *SUBJECT, "--batch", "64", "--within", "1h"], "got both batch and batch_per_device"),
    "data set": (["deadline", *SUBJECT, "--within", "1h", "--dataset", "imagnet"], "did you mean 'imagenet'"),
    "link": (["network", *SUBJECT, "--link", "ib"], "one of slot, nic-port, switch-port, fdr, got 'ib'"),
    "loss": (["network", *SUBJECT, "--link", "fdr", "--loss", "100"], "which is 100 %, got 1 (100 %)"),
    "no budget": (["budget", *SUBJECT], "budget must be either money or device hours, got neither"),
    "no price": (["budget", *SUBJECT, "--money", "1"], "price of fdr-32x3 must be given"),
    "price": (["offers", *SUBJECT, "--price", "titanx-4=1"], "price must be of one of the clusters fdr-32x3"),
    "strategy": (["batch", *SUBJECT, "--strategies", "dta"], "did you mean 'data'"),
    "no plan": (["offers", *SUBJECT[:3], "--batch", "7"], "fdr-32x3: data:"),
    "framework": (["batch", *SUBJECT, "--framework", "dpp"], "framework must be"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_code_2(case, capsys, tmp_path):
    words, message = BAD[case]
    assert run_app(app, ["size", *words, "--out", str(tmp_path / "page")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert message in printed.err
    assert list(tmp_path.iterdir()) == []
